package org.linnet.chat;

import android.Manifest;
import android.app.Activity;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
import android.content.pm.PackageManager;
import android.net.Uri;
import android.os.Build;
import android.os.Bundle;
import android.os.IBinder;
import android.view.View;
import android.view.ViewGroup.LayoutParams;
import android.widget.Button;
import android.widget.EditText;
import android.widget.LinearLayout;
import android.widget.ScrollView;
import android.widget.TextView;

/** Draws what ChatService says; keeps nothing itself but what is being typed. */
public final class ChatActivity extends Activity {
    static final int CHOOSE_MODEL = 1;
    private static final int ASK_NOTIFICATIONS = 2;
    private static final String CHOSEN = "chosen";

    Button choose;
    Button load;
    Button send;
    Button stop;
    EditText input;
    TextView status;
    TextView transcript;
    private ScrollView scroll;
    private ChatService service;
    private boolean bound;
    private Uri chosen; // a result that came before the service was bound
    private final ChatService.Listener drawer = this::draw;

    private final ServiceConnection connection = new ServiceConnection() {
        @Override
        public void onServiceConnected(ComponentName name, IBinder binder) {
            service = ((ChatService.LocalBinder) binder).service();
            service.setListener(drawer);
            if (chosen != null) {
                open(chosen);
            } else {
                service.resume();
            }
            draw();
        }

        @Override
        public void onServiceDisconnected(ComponentName name) {
            service = null;
            draw();
        }
    };

    @Override
    protected void onCreate(Bundle saved) {
        super.onCreate(saved);
        if (saved != null && saved.getString(CHOSEN) != null) chosen = Uri.parse(saved.getString(CHOSEN));
        setContentView(makeViews());
        draw();
    }

    @Override
    protected void onSaveInstanceState(Bundle saved) {
        super.onSaveInstanceState(saved);
        if (chosen != null) saved.putString(CHOSEN, chosen.toString());
    }

    // Started as well as bound: it lives on while the activity is made anew for a rotated screen.
    @Override
    protected void onStart() {
        super.onStart();
        Intent intent = new Intent(this, ChatService.class);
        startService(intent);
        bound = bindService(intent, connection, Context.BIND_AUTO_CREATE);
    }

    @Override
    protected void onStop() {
        if (service != null) service.removeListener(drawer);
        if (bound) unbindService(connection);
        bound = false;
        service = null;
        super.onStop();
    }

    @Override
    protected void onDestroy() {
        if (isFinishing()) stopService(new Intent(this, ChatService.class));
        super.onDestroy();
    }

    private View makeViews() {
        LinearLayout views = new LinearLayout(this);
        views.setOrientation(LinearLayout.VERTICAL);
        views.setFitsSystemWindows(true);
        choose = button("Choose a model", view -> chooseModel());
        load = button("Load", view -> load());
        send = button("Send", view -> send());
        stop = button("Stop", view -> service.stop());
        status = new TextView(this);
        status.setId(R_STATUS);
        transcript = new TextView(this);
        transcript.setTextIsSelectable(true);
        scroll = new ScrollView(this);
        scroll.addView(transcript);
        input = new EditText(this);
        input.setId(R_INPUT); // views with an id keep their text over a rotation
        input.setHint("Message");
        LinearLayout buttons = new LinearLayout(this);
        for (Button each : new Button[] {choose, load, send, stop}) buttons.addView(each);
        views.addView(status);
        views.addView(scroll, new LinearLayout.LayoutParams(LayoutParams.MATCH_PARENT, 0, 1));
        views.addView(input);
        views.addView(buttons);
        return views;
    }

    // Ids of an activity without XML resources; any positive number that is not generated.
    private static final int R_STATUS = 1001;
    private static final int R_INPUT = 1002;

    private Button button(String text, View.OnClickListener listener) {
        Button button = new Button(this);
        button.setText(text);
        button.setOnClickListener(listener);
        return button;
    }

    private void chooseModel() {
        Intent intent = new Intent(Intent.ACTION_OPEN_DOCUMENT);
        intent.addCategory(Intent.CATEGORY_OPENABLE);
        intent.setType("*/*"); // .linnet has no registered type
        startActivityForResult(intent, CHOOSE_MODEL);
    }

    @Override
    protected void onActivityResult(int request, int result, Intent data) {
        super.onActivityResult(request, result, data);
        if (request != CHOOSE_MODEL || result != RESULT_OK || data == null || data.getData() == null) return;
        if (service == null) {
            chosen = data.getData();
        } else {
            open(data.getData());
        }
    }

    private void open(Uri model) {
        chosen = null;
        service.open(model);
    }

    // From Android 13 on the service's notification, with its own Stop, is only seen where the user agrees; without it
    // everything works all the same.
    private void load() {
        if (Build.VERSION.SDK_INT >= Build.VERSION_CODES.TIRAMISU
                && checkSelfPermission(Manifest.permission.POST_NOTIFICATIONS) != PackageManager.PERMISSION_GRANTED) {
            requestPermissions(new String[] {Manifest.permission.POST_NOTIFICATIONS}, ASK_NOTIFICATIONS);
        }
        service.load();
    }

    private void send() {
        service.send(input.getText().toString());
        input.setText("");
    }

    private void draw() {
        ChatService.State state = service == null ? null : service.state();
        choose.setEnabled(state == ChatService.State.EMPTY || state == ChatService.State.PLANNED
                || state == ChatService.State.READY);
        load.setEnabled(state == ChatService.State.PLANNED);
        send.setEnabled(state == ChatService.State.READY);
        stop.setEnabled(state == ChatService.State.ANSWERING || state == ChatService.State.LOADING);
        if (service == null) return;
        String text = state == ChatService.State.PLANNED ? service.planText() : "";
        status.setText(service.message().isEmpty() ? text : text + service.message());
        drawTranscript(service.transcript());
    }

    // Appends, so that a selection stays; follows the text only where its end is in sight, and leaves the focus where
    // the user types.
    private void drawTranscript(String text) {
        String shown = transcript.getText().toString();
        if (text.equals(shown)) return;
        int seen = scroll.getScrollY() + scroll.getHeight();
        boolean follow = transcript.getHeight() <= seen + transcript.getLineHeight();
        if (text.startsWith(shown)) {
            transcript.append(text.substring(shown.length()));
        } else {
            transcript.setText(text);
        }
        if (follow) scroll.post(() -> scroll.scrollTo(0, transcript.getHeight()));
    }
}
