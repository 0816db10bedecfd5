package org.linnet.chat;

import java.nio.charset.StandardCharsets;

/**
 * The C API (linnet.h) as native methods. Handles are longs that the callers free; texts are UTF-8 bytes, since JNI's
 * own strings are a modified UTF-8 that has no emoji. The rules for threads are those of linnet.h.
 */
final class Linnet {
    static {
        System.loadLibrary("linnet_jni");
    }

    private Linnet() {}

    /** Progress of a long call, on the thread of that call. */
    interface Progress {
        /** Returns false to stop. */
        boolean onProgress(long done, long total);
    }

    // Places in what plan() returns: sums of linnet_plan's fields, in bytes but for the first two.
    static final int PLAN_CONTEXT = 0;
    static final int PLAN_THREADS = 1;
    static final int PLAN_MAPPED = 2; // read where the file is mapped; nothing where it had to be copied
    static final int PLAN_PACKED = 3; // a mapped file in the cache
    static final int PLAN_COPY = 4;
    static final int PLAN_KV_CACHE = 5;
    static final int PLAN_WORKING = 6; // everything else that is anonymous
    static final int PLAN_TOTAL = 7;

    static native byte[] version();

    /** Maps `length` bytes (0: up to the file's end) at `offset` of a file descriptor, which may be closed after. */
    static native long openModel(int descriptor, long offset, long length) throws LinnetException;

    static native void freeModel(long model);

    static native byte[] modelName(long model) throws LinnetException;

    static native boolean hasChatTemplate(long model) throws LinnetException;

    static native boolean isEnd(long model, int id);

    static native long[] plan(long model, int contextTokens, int threads) throws LinnetException;

    static native void load(long model, byte[] cacheFolder, Progress progress) throws LinnetException;

    static native int[] tokenize(long model, byte[] text, int flags) throws LinnetException;

    /** The conversation as the model's template writes it: role, content, role, content, ... */
    static native byte[] renderChat(long model, byte[][] messages, long nowUnixSeconds) throws LinnetException;

    static native long createSession(long model, int contextTokens, int threads) throws LinnetException;

    static native void freeSession(long session);

    static native int setPrompt(long session, int[] ids, Progress progress) throws LinnetException;

    static native void decode(long session, int id) throws LinnetException;

    static native int remaining(long session);

    static native void cancel(long session);

    static native void resetCancel(long session);

    /** A sampler with what the model's authors recommend. */
    static native long createSampler(long model, long seed) throws LinnetException;

    static native void freeSampler(long sampler);

    static native int sample(long sampler, long session) throws LinnetException;

    static native void accept(long sampler, int[] ids) throws LinnetException;

    static native long createDecoder(long model, int flags) throws LinnetException;

    static native void freeDecoder(long decoder);

    static native byte[] push(long decoder, int id) throws LinnetException;

    static native byte[] flush(long decoder) throws LinnetException;

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
