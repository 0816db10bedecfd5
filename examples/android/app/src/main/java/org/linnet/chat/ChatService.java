package org.linnet.chat;

import android.app.ActivityManager;
import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.PendingIntent;
import android.app.Service;
import android.content.ContentResolver;
import android.content.Intent;
import android.content.SharedPreferences;
import android.content.UriPermission;
import android.content.pm.ServiceInfo;
import android.content.res.AssetFileDescriptor;
import android.net.Uri;
import android.os.Binder;
import android.os.Build;
import android.os.Handler;
import android.os.IBinder;
import android.os.Looper;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.json.JSONArray;
import org.json.JSONException;

/**
 * Holds the model and runs it on a thread of its own, so that an activity may come and go (a rotated screen) while an
 * answer is made. Everything public is for the main thread; the activity draws what the getters say.
 */
public final class ChatService extends Service {
    /** What can be done now. */
    enum State {
        EMPTY, // a model can be chosen
        OPENING,
        PLANNED, // planText() is there, the model can be loaded
        LOADING,
        READY, // a message can be sent
        ANSWERING, // stop() is possible
    }

    interface Listener {
        void onChange();
    }

    final class LocalBinder extends Binder {
        ChatService service() {
            return ChatService.this;
        }
    }

    private static final String CHANNEL = "answers";
    private static final int NOTIFICATION = 1;
    private static final String ACTION_STOP = "org.linnet.chat.STOP";
    private static final String KEY_MODEL = "model"; // what is kept for when the system has ended the process
    private static final String KEY_CONVERSATION = "conversation";

    private final LocalBinder binder = new LocalBinder();
    private final Handler main = new Handler(Looper.getMainLooper());
    private final ExecutorService worker = Executors.newSingleThreadExecutor(task -> new Thread(task, "linnet"));

    // Main thread only.
    private final StringBuilder transcript = new StringBuilder();
    private Listener listener;
    private State state = State.EMPTY;
    private String planText = "";
    private String message = ""; // the last failure, or progress
    private ChatEngine engine;
    private boolean destroyed;
    private volatile boolean loadStopped; // the one thing that the worker reads

    State state() {
        return state;
    }

    String planText() {
        return planText;
    }

    String message() {
        return message;
    }

    String transcript() {
        return transcript.toString();
    }

    /** Of the activity that is seen. */
    void setListener(Listener listener) {
        this.listener = listener;
    }

    /** Does nothing where another activity has set its own since. */
    void removeListener(Listener listener) {
        if (this.listener == listener) this.listener = null;
    }

    @Override
    public void onCreate() {
        super.onCreate();
        NotificationManager manager = getSystemService(NotificationManager.class);
        manager.createNotificationChannel(
                new NotificationChannel(CHANNEL, "Answers in progress", NotificationManager.IMPORTANCE_LOW));
    }

    @Override
    public IBinder onBind(Intent intent) {
        return binder;
    }

    @Override
    public int onStartCommand(Intent intent, int flags, int startId) {
        if (intent != null && ACTION_STOP.equals(intent.getAction())) stop();
        return START_NOT_STICKY;
    }

    @Override
    public void onDestroy() {
        destroyed = true;
        loadStopped = true;
        ChatEngine last = engine;
        engine = null;
        if (last != null) {
            last.stop();
            worker.execute(last::close);
        }
        worker.shutdown();
        super.onDestroy();
    }

    private SharedPreferences kept() {
        return getSharedPreferences("chat", MODE_PRIVATE);
    }

    /** Maps the model and shows its plan. Nothing is read but its description. Begins a new conversation. */
    void open(Uri uri) {
        if (state != State.EMPTY && state != State.PLANNED && state != State.READY) return;
        keepAccess(uri);
        kept().edit().putString(KEY_MODEL, uri.toString()).remove(KEY_CONVERSATION).apply();
        open(uri, Collections.emptyList());
    }

    /** Opens the model and the conversation of a process that the system has ended. */
    void resume() {
        String uri = kept().getString(KEY_MODEL, "");
        if (state != State.EMPTY || uri.isEmpty()) return;
        List<String> texts = new ArrayList<>();
        try {
            JSONArray array = new JSONArray(kept().getString(KEY_CONVERSATION, "[]"));
            for (int i = 0; i < array.length(); ++i) texts.add(array.getString(i));
        } catch (JSONException e) {
            texts.clear(); // a new conversation
        }
        open(Uri.parse(uri), texts);
    }

    // The file picker's grant ends with the process unless it is taken for longer; there is a limit to how many.
    private void keepAccess(Uri uri) {
        try {
            ContentResolver files = getContentResolver();
            for (UriPermission old : new ArrayList<>(files.getPersistedUriPermissions())) {
                if (old.getUri().equals(uri)) continue;
                files.releasePersistableUriPermission(old.getUri(), Intent.FLAG_GRANT_READ_URI_PERMISSION);
            }
            files.takePersistableUriPermission(uri, Intent.FLAG_GRANT_READ_URI_PERMISSION);
        } catch (SecurityException e) {
            // Not every source of files gives access for longer; this one has to be chosen again next time.
        }
    }

    private void open(Uri uri, List<String> conversation) {
        ChatEngine previous = engine;
        engine = null;
        planText = "";
        transcript.setLength(0);
        change(State.OPENING, "");
        worker.execute(() -> {
            if (previous != null) previous.close();
            try {
                ChatEngine opened = openEngine(uri);
                String name = opened.modelName();
                opened.restore(conversation);
                main.post(() -> {
                    if (destroyed) {
                        opened.close();
                        return;
                    }
                    engine = opened;
                    planText = (name.isEmpty() ? "" : name + '\n') + opened.planText() + freeMemory();
                    for (int i = 0; i + 1 < conversation.size(); i += 2) {
                        transcript.append("> ").append(conversation.get(i)).append('\n');
                        transcript.append(conversation.get(i + 1)).append('\n');
                    }
                    change(State.PLANNED, "");
                });
            } catch (IOException | RuntimeException e) {
                kept().edit().clear().apply();
                fail(State.EMPTY, e);
            }
        });
    }

    // The library maps the file: the descriptor is closed again at once. An asset or a part of a file has an offset.
    private ChatEngine openEngine(Uri uri) throws IOException {
        try (AssetFileDescriptor file = getContentResolver().openAssetFileDescriptor(uri, "r")) {
            if (file == null) throw new FileNotFoundException(uri.toString());
            long length = file.getLength() == AssetFileDescriptor.UNKNOWN_LENGTH ? 0 : file.getLength();
            return new ChatEngine(file.getParcelFileDescriptor().getFd(), file.getStartOffset(), length, 0, 0);
        }
    }

    private String freeMemory() {
        ActivityManager.MemoryInfo info = new ActivityManager.MemoryInfo();
        getSystemService(ActivityManager.class).getMemoryInfo(info);
        return String.format(Locale.ROOT, "%.1f MiB  free on this device, of %.1f MiB%n", info.availMem / 1048576.0,
                info.totalMem / 1048576.0);
    }

    void load() {
        if (state != State.PLANNED) return;
        ChatEngine loaded = engine;
        String folder = new File(getNoBackupFilesDir(), "linnet").getPath();
        loadStopped = false;
        change(State.LOADING, "");
        startForeground("Loading the model");
        worker.execute(() -> {
            try {
                loaded.load(folder, (done, total) -> {
                    progress("Preparing the weights for this CPU", done, total);
                    return !loadStopped;
                });
                main.post(() -> endWork(State.READY, ""));
            } catch (LinnetException | RuntimeException e) {
                main.post(() -> endWork(State.PLANNED, String.valueOf(e.getMessage())));
            }
        });
    }

    void send(String text) {
        if (state != State.READY || text.isEmpty()) return;
        ChatEngine answering = engine;
        answering.prepareAnswer();
        transcript.append("> ").append(text).append('\n');
        change(State.ANSWERING, "");
        startForeground("Answering");
        worker.execute(() -> {
            try {
                answering.answer(text, (done, total) -> {
                    progress("Reading", done, total);
                    return true;
                }, piece -> main.post(() -> {
                    transcript.append(piece);
                    change(state, "");
                }));
                main.post(() -> endAnswer(""));
            } catch (LinnetException | RuntimeException e) {
                main.post(() -> endAnswer(String.valueOf(e.getMessage())));
            }
        });
    }

    /** Ends the answer or the loading that runs. */
    void stop() {
        loadStopped = true;
        if (engine != null) engine.stop();
    }

    private void endAnswer(String failure) {
        if (destroyed) return;
        transcript.append('\n');
        kept().edit().putString(KEY_CONVERSATION, new JSONArray(engine.conversation()).toString()).apply();
        endWork(State.READY, failure);
    }

    private void endWork(State next, String failure) {
        if (destroyed) return;
        stopForeground(STOP_FOREGROUND_REMOVE);
        change(next, failure);
    }

    // While it works the system must not end the process because the app is in the background. Work is only begun by
    // someone who looks at the activity, so that Android 12 and newer allow it.
    private void startForeground(String what) {
        // As the launcher does it: the activity that exists comes back.
        Intent show = new Intent(this, ChatActivity.class)
                .setAction(Intent.ACTION_MAIN)
                .addCategory(Intent.CATEGORY_LAUNCHER)
                .setFlags(Intent.FLAG_ACTIVITY_NEW_TASK);
        Intent stop = new Intent(this, ChatService.class).setAction(ACTION_STOP);
        Notification notification = new Notification.Builder(this, CHANNEL)
                .setSmallIcon(android.R.drawable.stat_notify_chat)
                .setContentTitle(what)
                .setContentIntent(PendingIntent.getActivity(this, 0, show, PendingIntent.FLAG_IMMUTABLE))
                .addAction(new Notification.Action.Builder(null, "Stop",
                        PendingIntent.getService(this, 0, stop, PendingIntent.FLAG_IMMUTABLE)).build())
                .build();
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.UPSIDE_DOWN_CAKE) {
            startForeground(NOTIFICATION, notification, ServiceInfo.FOREGROUND_SERVICE_TYPE_SPECIAL_USE);
        } else {
            startForeground(NOTIFICATION, notification);
        }
    }

    private void progress(String what, long done, long total) {
        main.post(() -> change(state, what + ": " + (total == 0 ? 0 : 100 * done / total) + " %"));
    }

    private void fail(State next, Exception e) {
        main.post(() -> change(next, String.valueOf(e.getMessage())));
    }

    private void change(State next, String text) {
        state = next;
        message = text;
        if (listener != null) listener.onChange();
    }
}
