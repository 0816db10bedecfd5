package org.linnet.chat;

import android.app.Notification;
import android.app.NotificationChannel;
import android.app.NotificationManager;
import android.app.Service;
import android.content.Intent;
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
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

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

    /** Null: nobody looks. */
    void setListener(Listener listener) {
        this.listener = listener;
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

    /** Maps the model and shows its plan. Nothing is read but its description. */
    void open(Uri uri) {
        if (state != State.EMPTY && state != State.PLANNED && state != State.READY) return;
        ChatEngine previous = engine;
        engine = null;
        planText = "";
        transcript.setLength(0);
        change(State.OPENING, "");
        worker.execute(() -> {
            if (previous != null) previous.close();
            try {
                ChatEngine opened = openEngine(uri);
                main.post(() -> {
                    if (destroyed) {
                        opened.close();
                        return;
                    }
                    engine = opened;
                    planText = opened.planText();
                    change(State.PLANNED, "");
                });
            } catch (IOException | RuntimeException e) {
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

    void load() {
        if (state != State.PLANNED) return;
        ChatEngine loaded = engine;
        String folder = new File(getNoBackupFilesDir(), "linnet").getPath();
        loadStopped = false;
        change(State.LOADING, "");
        worker.execute(() -> {
            try {
                loaded.load(folder, (done, total) -> {
                    progress("Preparing the weights for this CPU", done, total);
                    return !loadStopped;
                });
                main.post(() -> change(State.READY, ""));
            } catch (LinnetException | RuntimeException e) {
                fail(State.PLANNED, e);
            }
        });
    }

    void send(String text) {
        if (state != State.READY || text.isEmpty()) return;
        ChatEngine answering = engine;
        answering.prepareAnswer();
        transcript.append("> ").append(text).append('\n');
        change(State.ANSWERING, "");
        startForeground();
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
        transcript.append('\n');
        stopForeground(STOP_FOREGROUND_REMOVE);
        change(State.READY, failure);
    }

    // While an answer is made the system must not end the process because the app is in the background.
    private void startForeground() {
        startForegroundService(new Intent(this, ChatService.class));
        Notification notification = new Notification.Builder(this, CHANNEL)
                .setSmallIcon(android.R.drawable.stat_notify_chat)
                .setContentTitle("Answering")
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
