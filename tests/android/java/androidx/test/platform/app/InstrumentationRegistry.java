package androidx.test.platform.app;

import android.app.Instrumentation;
import android.os.Bundle;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public final class InstrumentationRegistry {
    private static Instrumentation instance;

    private InstrumentationRegistry() {}

    public static void registerInstance(Instrumentation instrumentation, Bundle arguments) {
        instance = instrumentation;
    }

    public static Instrumentation getInstrumentation() {
        if (instance == null) throw new IllegalStateException("no instrumentation is registered");
        return instance;
    }
}
