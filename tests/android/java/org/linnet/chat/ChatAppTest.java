package org.linnet.chat;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;
import static org.robolectric.Shadows.shadowOf;

import android.Manifest;
import android.app.Activity;
import android.app.Notification;
import android.content.Intent;
import android.net.Uri;
import android.os.Looper;
import android.text.Editable;
import android.text.TextWatcher;
import java.io.File;
import java.util.concurrent.Callable;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.junit.runner.RunWith;
import org.robolectric.Robolectric;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.RuntimeEnvironment;
import org.robolectric.android.controller.ActivityController;
import org.robolectric.android.controller.ServiceController;
import org.robolectric.annotation.Config;
import org.robolectric.shadows.ShadowActivity;
import org.robolectric.shadows.ShadowApplication;
import org.robolectric.shadows.ShadowService;

/** The activity, the service and the native layer together, as a user drives them. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 34, manifest = Config.NONE)
public final class ChatAppTest {
    private static final String CHAT_MODEL = System.getProperty("linnet.chatModel");
    private static final String STORY_MODEL = System.getProperty("linnet.storyModel", "");

    private ServiceController<ChatService> service;
    private ActivityController<ChatActivity> activity;

    @Before
    public void start() {
        startService();
        activity = Robolectric.buildActivity(ChatActivity.class).setup();
        settle();
    }

    @After
    public void end() {
        activity.pause().stop().destroy();
        service.destroy();
    }

    private void startService() {
        service = Robolectric.buildService(ChatService.class).create();
        Intent intent = new Intent(RuntimeEnvironment.getApplication(), ChatService.class);
        shadowOf(RuntimeEnvironment.getApplication()).setComponentNameAndServiceForBindService(
                intent.getComponent(), service.get().onBind(intent));
    }

    private ChatActivity view() {
        return activity.get();
    }

    private static void settle() {
        shadowOf(Looper.getMainLooper()).idle();
    }

    /** Runs the main thread's tasks until the condition holds. */
    private static void await(String what, Callable<Boolean> condition) throws Exception {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!condition.call()) {
            assertTrue("waiting for: " + what, System.nanoTime() < end);
            settle();
            Thread.sleep(1);
        }
    }

    private void awaitState(ChatService.State state) throws Exception {
        await(state.toString() + ", found " + service.get().message(), () -> service.get().state() == state);
    }

    private void chooseModel(String path) {
        assertTrue(view().choose.isEnabled());
        view().choose.performClick();
        ShadowActivity shadow = shadowOf(view());
        ShadowActivity.IntentForResult asked = shadow.getNextStartedActivityForResult();
        assertNotNull(asked);
        assertEquals(Intent.ACTION_OPEN_DOCUMENT, asked.intent.getAction());
        shadow.receiveResult(asked.intent, Activity.RESULT_OK, new Intent().setData(Uri.fromFile(new File(path))));
    }

    private void chooseAndLoad(String path) throws Exception {
        chooseModel(path);
        awaitState(ChatService.State.PLANNED);
        view().load.performClick();
        awaitState(ChatService.State.READY);
    }

    private void say(String text) {
        view().input.setText(text);
        view().send.performClick();
        assertEquals("", view().input.getText().toString());
    }

    /** Counts how often a text becomes longer. */
    private static final class Growth implements TextWatcher {
        private int length;
        int times;

        @Override
        public void beforeTextChanged(CharSequence text, int start, int count, int after) {}

        @Override
        public void onTextChanged(CharSequence text, int start, int before, int count) {}

        @Override
        public void afterTextChanged(Editable text) {
            if (text.length() > length) ++times;
            length = text.length();
        }
    }

    @Test
    public void planIsShownBeforeAnythingIsLoaded() throws Exception {
        assertFalse(view().load.isEnabled());
        assertFalse(view().send.isEnabled());
        chooseModel(CHAT_MODEL);
        awaitState(ChatService.State.PLANNED);
        String plan = view().status.getText().toString();
        assertTrue(plan, plan.contains("Context of 256 tokens, "));
        assertTrue(plan, plan.contains("MiB  conversation (KV cache)"));
        assertTrue(plan, plan.contains("MiB  total"));
        assertTrue(plan, plan.contains("MiB  free on this device, of "));
        assertTrue(view().load.isEnabled());
        assertFalse(view().send.isEnabled());
        assertFalse(new File(service.get().getNoBackupFilesDir(), "linnet").exists());
        view().load.performClick();
        awaitState(ChatService.State.READY);
        assertTrue(new File(service.get().getNoBackupFilesDir(), "linnet/packed").isDirectory());
        assertTrue(view().send.isEnabled());
    }

    @Test
    public void answersStreamIn() throws Exception {
        chooseAndLoad(CHAT_MODEL);
        Growth growth = new Growth();
        view().transcript.addTextChangedListener(growth);
        say("hello \ud83d\ude00");
        awaitState(ChatService.State.READY);
        assertTrue("pieces: " + growth.times, growth.times > 10);
        assertTrue(view().transcript.getText().toString().startsWith("> hello \ud83d\ude00\n"));
        say("and again");
        awaitState(ChatService.State.READY);
        assertEquals("", service.get().message());
    }

    @Test
    public void storyIsTheOneThatThePublishedModelTells() throws Exception {
        assumeTrue("no stories260k", !STORY_MODEL.isEmpty());
        chooseAndLoad(STORY_MODEL);
        say("Once upon a time");
        await("a story", () -> view().transcript.getText().length() > 120);
        view().stop.performClick();
        awaitState(ChatService.State.READY);
        String text = view().transcript.getText().toString();
        assertTrue(text, text.startsWith("> Once upon a time\n, there was a little girl named Lily."));
    }

    private Notification foreground() {
        ShadowService shadow = shadowOf(service.get());
        return shadow.isForegroundStopped() ? null : shadow.getLastForegroundNotification();
    }

    @Test
    public void serviceIsInTheForegroundWhileItWorksAndTheNotificationStopsIt() throws Exception {
        chooseModel(CHAT_MODEL);
        awaitState(ChatService.State.PLANNED);
        assertNull(foreground());
        view().load.performClick();
        assertArrayEquals(new String[] {Manifest.permission.POST_NOTIFICATIONS},
                shadowOf(view()).getLastRequestedPermission().requestedPermissions);
        assertNotNull(foreground());
        awaitState(ChatService.State.READY);
        assertNull(foreground());
        say("hello");
        assertNotNull(foreground().contentIntent);
        Intent stop = shadowOf(foreground().actions[0].actionIntent).getSavedIntent();
        service.get().onStartCommand(stop, 0, 1);
        awaitState(ChatService.State.READY);
        assertNull(foreground());
        assertEquals("", service.get().message());
    }

    @Test
    public void stopEndsTheLoadingToo() throws Exception {
        chooseModel(CHAT_MODEL);
        awaitState(ChatService.State.PLANNED);
        view().load.performClick();
        assertTrue(view().stop.isEnabled());
        view().stop.performClick();
        // Either it was still packing, or everything was done before the stop came.
        await("an end", () -> service.get().state() != ChatService.State.LOADING);
        if (service.get().state() == ChatService.State.PLANNED) view().load.performClick();
        awaitState(ChatService.State.READY);
        say("hello");
        awaitState(ChatService.State.READY);
    }

    @Test
    public void loadingSurvivesARotationAndLeavingEndsTheService() throws Exception {
        chooseModel(CHAT_MODEL);
        awaitState(ChatService.State.PLANNED);
        view().load.performClick();
        activity.recreate();
        awaitState(ChatService.State.READY);
        assertTrue(view().send.isEnabled());
        ShadowApplication application = shadowOf(RuntimeEnvironment.getApplication());
        assertEquals(ChatService.class.getName(), application.getNextStartedService().getComponent().getClassName());
        assertNull(application.getNextStoppedService());
        view().finish();
        activity.pause().stop().destroy();
        assertEquals(ChatService.class.getName(), application.getNextStoppedService().getComponent().getClassName());
        activity = Robolectric.buildActivity(ChatActivity.class).setup();
    }

    @Test
    public void secondActivityIsNotCutOffByTheFirst() throws Exception {
        ActivityController<ChatActivity> first = activity;
        activity = Robolectric.buildActivity(ChatActivity.class).setup();
        settle();
        first.pause().stop().destroy();
        chooseModel(CHAT_MODEL);
        awaitState(ChatService.State.PLANNED);
        assertTrue(view().load.isEnabled());
    }

    @Test
    public void modelAndConversationComeBackInANewProcess() throws Exception {
        chooseAndLoad(CHAT_MODEL);
        assertEquals(1, service.get().getContentResolver().getPersistedUriPermissions().size());
        say("hello");
        awaitState(ChatService.State.READY);
        String said = view().transcript.getText().toString();
        activity.pause().stop().destroy();
        service.destroy();
        startService();
        activity = Robolectric.buildActivity(ChatActivity.class).setup();
        awaitState(ChatService.State.PLANNED);
        assertEquals(said, view().transcript.getText().toString());
        assertTrue(view().status.getText().toString().contains("MiB  total"));
        view().load.performClick();
        awaitState(ChatService.State.READY);
        say("more");
        awaitState(ChatService.State.READY);
        assertEquals("", service.get().message());
        assertTrue(view().transcript.getText().toString().startsWith(said + "> more\n"));
    }

    @Test
    public void anotherModelBeginsAnotherConversation() throws Exception {
        chooseAndLoad(CHAT_MODEL);
        say("hello");
        assertFalse(view().choose.isEnabled()); // not while it answers
        service.get().open(Uri.fromFile(new File(CHAT_MODEL)));
        assertEquals(ChatService.State.ANSWERING, service.get().state());
        awaitState(ChatService.State.READY);
        chooseAndLoad(CHAT_MODEL);
        assertEquals("", view().transcript.getText().toString());
        say("hello");
        awaitState(ChatService.State.READY);
    }

    @Test
    public void stopEndsTheAnswerAndTheConversationGoesOn() throws Exception {
        // That a stop shortens the answer is shown in LinnetTest, where it does not depend on this thread's speed.
        chooseAndLoad(STORY_MODEL.isEmpty() ? CHAT_MODEL : STORY_MODEL);
        say("Once upon a time");
        assertTrue(view().stop.isEnabled());
        view().stop.performClick();
        awaitState(ChatService.State.READY);
        int stopped = view().transcript.getText().length();
        Thread.sleep(20);
        settle();
        assertEquals(stopped, view().transcript.getText().length());
        say("Once upon a time");
        await("some text", () -> view().transcript.getText().length() > stopped + 40);
        view().stop.performClick();
        awaitState(ChatService.State.READY);
        assertTrue(view().send.isEnabled());
        assertFalse(view().stop.isEnabled());
    }

    @Test
    public void answerSurvivesARotation() throws Exception {
        chooseAndLoad(CHAT_MODEL);
        view().input.setText("hello");
        view().send.performClick();
        view().input.setText("being typed");
        ChatActivity before = view();
        activity.recreate();
        settle();
        assertNotEquals(before, view());
        assertTrue(view().transcript.getText().toString().startsWith("> hello\n"));
        assertEquals("being typed", view().input.getText().toString());
        awaitState(ChatService.State.READY);
        assertEquals(service.get().transcript(), view().transcript.getText().toString());
        assertTrue(view().transcript.getText().length() > "> hello\n".length() + 10);
        say("more");
        awaitState(ChatService.State.READY);
    }

    @Test
    public void wrongFilesAreNamedAndAnotherCanBeChosen() throws Exception {
        chooseModel(System.getProperty("linnet.manifest"));
        await("a failure", () -> !service.get().message().isEmpty());
        assertEquals(ChatService.State.EMPTY, service.get().state());
        assertTrue(view().status.getText().toString(), view().status.getText().toString().contains("model"));
        chooseAndLoad(CHAT_MODEL);
    }
}
