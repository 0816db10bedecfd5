package org.linnet.chat;

import java.io.IOException;

/** A failure of the library: its status (linnet.h) and one line that says what, where, expected, found. */
public final class LinnetException extends IOException {
    public static final int CANCELLED = 7;

    private final int status;

    /** Called by the native layer; the message is UTF-8. */
    LinnetException(int status, byte[] message) {
        super(Linnet.text(message));
        this.status = status;
    }

    public int status() {
        return status;
    }
}
