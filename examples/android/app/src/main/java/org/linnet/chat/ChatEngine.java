package org.linnet.chat;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * One model and one conversation. All methods but stop() are called on one thread at a time and may take long; stop()
 * may be called from any thread at any time.
 */
final class ChatEngine implements AutoCloseable {
    private static final int ENCODE_PARSE_SPECIAL = 2;
    private static final int ENCODE_TEXT_START = 4;
    private static final int DECODE_CONTINUES = 2;
    private static final String ASSISTANT = "assistant";

    /** Receives an answer in pieces of whole characters. */
    interface Listener {
        void onText(String piece);
    }

    private static final class Message {
        final String role;
        final String content;

        Message(String role, String content) {
            this.role = role;
            this.content = content;
        }
    }

    private final long model;
    private final long[] plan;
    private final int threads;
    private final boolean hasTemplate;
    private final long startedUnixSeconds = System.currentTimeMillis() / 1000; // the template's clock stands still
    private final List<Message> messages = new ArrayList<>();
    private final Object sessionLock = new Object(); // stop() must not meet a session that is being freed
    private long session;
    private long sampler;

    /**
     * Maps the model and plans its memory; loads nothing.
     *
     * @param contextTokens 0: the library's default
     * @param threads 0: the library's default
     */
    ChatEngine(int descriptor, long offset, long length, int contextTokens, int threads) throws LinnetException {
        model = Linnet.openModel(descriptor, offset, length);
        this.threads = threads;
        try {
            plan = Linnet.plan(model, contextTokens, threads);
            hasTemplate = Linnet.hasChatTemplate(model);
        } catch (LinnetException e) {
            Linnet.freeModel(model);
            throw e;
        }
    }

    String modelName() throws LinnetException {
        return Linnet.text(Linnet.modelName(model));
    }

    /** What the conversation will take, class by class, in MiB. */
    String planText() {
        StringBuilder text = new StringBuilder();
        text.append(String.format(Locale.ROOT, "Context of %d tokens, %d threads%n", plan[Linnet.PLAN_CONTEXT],
                plan[Linnet.PLAN_THREADS]));
        line(text, "weights, mapped from the file", plan[Linnet.PLAN_MAPPED]);
        line(text, "weights for this CPU, mapped from the cache", plan[Linnet.PLAN_PACKED]);
        if (plan[Linnet.PLAN_COPY] != 0) line(text, "copy of the file", plan[Linnet.PLAN_COPY]);
        line(text, "conversation (KV cache)", plan[Linnet.PLAN_KV_CACHE]);
        line(text, "working memory", plan[Linnet.PLAN_WORKING]);
        line(text, "total", plan[Linnet.PLAN_TOTAL]);
        return text.toString();
    }

    private static void line(StringBuilder text, String name, long bytes) {
        text.append(String.format(Locale.ROOT, "%.1f MiB  %s%n", bytes / 1048576.0, name));
    }

    long totalBytes() {
        return plan[Linnet.PLAN_TOTAL];
    }

    /** Packs the weights for this CPU at the first use of a model, and takes the session's memory. */
    void load(String cacheFolder, Linnet.Progress progress) throws LinnetException {
        Linnet.load(model, Linnet.bytes(cacheFolder), progress);
        if (sampler == 0) sampler = Linnet.createSampler(model, System.nanoTime());
        long created = Linnet.createSession(model, (int) plan[Linnet.PLAN_CONTEXT], threads);
        synchronized (sessionLock) {
            session = created;
        }
    }

    /** Must come before answer(): a stop() from then on ends that answer, however early it comes. */
    void prepareAnswer() {
        synchronized (sessionLock) {
            if (session != 0) Linnet.resetCancel(session);
        }
    }

    void stop() {
        synchronized (sessionLock) {
            if (session != 0) Linnet.cancel(session);
        }
    }

    /**
     * Answers `text` until the model ends, the context is full or stop() is called; what was said is remembered. A text
     * that was not read to its end (a stop, a failure) is forgotten: many templates refuse two messages of one role.
     */
    void answer(String text, Linnet.Progress progress, Listener listener) throws LinnetException {
        List<Message> before = new ArrayList<>(messages);
        messages.add(new Message("user", text));
        StringBuilder said = new StringBuilder();
        boolean read = false;
        try {
            int[] ids = prompt();
            int reused = Linnet.setPrompt(session, ids, progress);
            read = true;
            int[] added = new int[ids.length - reused];
            System.arraycopy(ids, reused, added, 0, added.length);
            Linnet.accept(sampler, added);
            generate(piece -> {
                said.append(piece);
                listener.onText(piece);
            });
        } catch (LinnetException e) {
            if (e.status() != LinnetException.CANCELLED) throw e;
        } finally {
            if (read) {
                messages.add(new Message(ASSISTANT, said.toString()));
            } else {
                messages.clear();
                messages.addAll(before);
            }
        }
    }

    /** What was said so far: a text of the user, its answer, and so on. Not while answer() runs. */
    List<String> conversation() {
        List<String> texts = new ArrayList<>();
        for (Message message : messages) texts.add(message.content);
        return texts;
    }

    /** Continues a conversation that conversation() gave. */
    void restore(List<String> texts) {
        messages.clear();
        for (int i = 0; i + 1 < texts.size(); i += 2) {
            messages.add(new Message("user", texts.get(i)));
            messages.add(new Message(ASSISTANT, texts.get(i + 1)));
        }
    }

    private void generate(Listener listener) throws LinnetException {
        long decoder = Linnet.createDecoder(model, hasTemplate ? 0 : DECODE_CONTINUES);
        try {
            while (true) {
                int id = Linnet.sample(sampler, session);
                if (Linnet.isEnd(model, id)) break;
                Linnet.accept(sampler, new int[] {id});
                give(listener, Linnet.push(decoder, id));
                if (Linnet.remaining(session) == 0) break;
                Linnet.decode(session, id);
            }
            give(listener, Linnet.flush(decoder));
        } finally {
            Linnet.freeDecoder(decoder);
        }
    }

    private static void give(Listener listener, byte[] piece) {
        if (piece.length != 0) listener.onText(Linnet.text(piece));
    }

    /** The conversation as ids. The oldest turns are dropped until a quarter of the context is free for the answer. */
    private int[] prompt() throws LinnetException {
        long room = plan[Linnet.PLAN_CONTEXT] * 3 / 4;
        while (true) {
            int[] ids = encode();
            if (ids.length <= room || messages.size() < 2) return ids;
            messages.remove(0);
            while (messages.size() > 1 && messages.get(0).role.equals(ASSISTANT)) messages.remove(0);
        }
    }

    private int[] encode() throws LinnetException {
        if (!hasTemplate) {
            StringBuilder text = new StringBuilder();
            for (Message message : messages) text.append(message.content);
            return Linnet.tokenize(model, Linnet.bytes(text.toString()), ENCODE_TEXT_START);
        }
        byte[][] texts = new byte[2 * messages.size()][];
        for (int i = 0; i < messages.size(); ++i) {
            texts[2 * i] = Linnet.bytes(messages.get(i).role);
            texts[2 * i + 1] = Linnet.bytes(messages.get(i).content);
        }
        byte[] rendered = Linnet.renderChat(model, texts, startedUnixSeconds);
        return Linnet.tokenize(model, rendered, ENCODE_PARSE_SPECIAL);
    }

    @Override
    public void close() {
        synchronized (sessionLock) {
            Linnet.freeSession(session);
            session = 0;
        }
        Linnet.freeSampler(sampler);
        Linnet.freeModel(model);
    }
}
