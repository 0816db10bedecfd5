package androidx.test.runner.intent;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public final class IntentMonitorRegistry {
    private IntentMonitorRegistry() {}

    public static void registerInstance(IntentMonitor monitor) {}
}
