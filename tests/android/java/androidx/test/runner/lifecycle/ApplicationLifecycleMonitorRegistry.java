package androidx.test.runner.lifecycle;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public final class ApplicationLifecycleMonitorRegistry {
    private ApplicationLifecycleMonitorRegistry() {}

    public static void registerInstance(ApplicationLifecycleMonitor monitor) {}
}
