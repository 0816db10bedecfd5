package androidx.test.runner.intent;

import android.app.Instrumentation;
import android.content.Intent;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public interface IntentStubber {
    Instrumentation.ActivityResult getActivityResultForIntent(Intent intent);
}
