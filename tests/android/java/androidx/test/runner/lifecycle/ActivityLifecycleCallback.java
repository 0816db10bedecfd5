package androidx.test.runner.lifecycle;

import android.app.Activity;

/** A stand-in for what Robolectric needs of androidx.test (README.md). */
public interface ActivityLifecycleCallback {
    void onActivityLifecycleChanged(Activity activity, Stage stage);
}
