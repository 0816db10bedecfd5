package androidx.test.runner.lifecycle;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public final class ActivityLifecycleMonitorRegistry {
    private static ActivityLifecycleMonitor instance;

    private ActivityLifecycleMonitorRegistry() {}

    public static void registerInstance(ActivityLifecycleMonitor monitor) {
        instance = monitor;
    }

    public static ActivityLifecycleMonitor getInstance() {
        return instance;
    }
}
