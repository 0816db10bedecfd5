package androidx.test.runner.lifecycle;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public enum ApplicationStage {
    PRE_ON_CREATE,
    CREATED
}
