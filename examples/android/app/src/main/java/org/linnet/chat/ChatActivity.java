package org.linnet.chat;

import android.app.Activity;
import android.content.ComponentName;
import android.content.Context;
import android.content.Intent;
import android.content.ServiceConnection;
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
    private Intent chosen; // a result that came before the service was bound

    private final ServiceConnection connection = new ServiceConnection() {
        @Override
        public void onServiceConnected(ComponentName name, IBinder binder) {
            service = ((ChatService.LocalBinder) binder).service();
            service.setListener(ChatActivity.this::draw);
            if (chosen != null) open(chosen);
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
        setContentView(makeViews());
        draw();
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
        if (service != null) service.setListener(null);
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
        load = button("Load", view -> service.load());
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
            chosen = data;
        } else {
            open(data);
        }
    }

    private void open(Intent data) {
        chosen = null;
        service.open(data.getData());
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
        transcript.setText(service.transcript());
        scroll.post(() -> scroll.fullScroll(View.FOCUS_DOWN));
    }
}
