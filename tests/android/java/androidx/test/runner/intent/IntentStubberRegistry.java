package androidx.test.runner.intent;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public final class IntentStubberRegistry {
    private IntentStubberRegistry() {}

    public static boolean isLoaded() {
        return false;
    }

    public static IntentStubber getInstance() {
        throw new IllegalStateException("no stubber is loaded");
    }
}
