package androidx.test.runner.lifecycle;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public enum Stage {
    PRE_ON_CREATE,
    CREATED,
    STARTED,
    RESUMED,
    PAUSED,
    STOPPED,
    RESTARTED,
    DESTROYED
}
