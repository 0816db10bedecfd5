package androidx.test.runner.intent;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public interface IntentMonitor {}
