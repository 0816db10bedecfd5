package org.linnet.chat;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;
import org.junit.runner.RunWith;
import org.robolectric.RobolectricTestRunner;
import org.robolectric.annotation.Config;

/** The native layer and the engine by themselves. In the runner of ChatAppTest, since a library is loaded only once. */
@RunWith(RobolectricTestRunner.class)
@Config(sdk = 34, manifest = Config.NONE)
public final class LinnetTest {
    private static final String CHAT_MODEL = System.getProperty("linnet.chatModel");

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private interface Use {
        void with(int descriptor) throws Exception;
    }

    /** What ParcelFileDescriptor.getFd() is on a device. */
    private static void withDescriptor(File file, Use use) throws Exception {
        try (RandomAccessFile opened = new RandomAccessFile(file, "r")) {
            Field field = FileDescriptor.class.getDeclaredField("fd");
            field.setAccessible(true);
            use.with(field.getInt(opened.getFD()));
        }
    }

    /** The model inside a larger file, as an asset lies in an APK. */
    private File embedded(int lead) throws IOException {
        File file = folder.newFile("lead" + lead);
        try (FileOutputStream out = new FileOutputStream(file)) {
            out.write(new byte[lead]);
            out.write(Files.readAllBytes(new File(CHAT_MODEL).toPath()));
            out.write(new byte[1000]);
        }
        return file;
    }

    private String answer(ChatEngine engine, String text, int stopAfterPieces) throws IOException {
        List<String> pieces = new ArrayList<>();
        engine.prepareAnswer();
        engine.answer(text, null, piece -> {
            pieces.add(piece);
            if (pieces.size() == stopAfterPieces) engine.stop();
        });
        if (stopAfterPieces != 0) assertTrue("pieces: " + pieces.size(), pieces.size() <= stopAfterPieces + 1);
        return String.join("", pieces);
    }

    private String answerFrom(File file, long offset, long length) throws Exception {
        ChatEngine[] opened = new ChatEngine[1];
        withDescriptor(file, descriptor -> opened[0] = new ChatEngine(descriptor, offset, length, 128, 2));
        ChatEngine engine = opened[0]; // whose descriptor is closed
        engine.load(folder.newFolder().getPath(), null);
        String said = answer(engine, "hello", 0);
        engine.close();
        return said;
    }

    private ChatEngine loaded(int contextTokens) throws Exception {
        ChatEngine[] opened = new ChatEngine[1];
        File file = new File(CHAT_MODEL);
        withDescriptor(file, descriptor -> opened[0] = new ChatEngine(descriptor, 0, 0, contextTokens, 1));
        opened[0].load(folder.newFolder().getPath(), null);
        return opened[0];
    }

    @Test
    public void versionIsTheLibrarys() {
        assertTrue(Linnet.text(Linnet.version()).matches("[0-9]+\\.[0-9]+\\.[0-9]+"));
    }

    @Test
    public void modelIsOpenedInsideALargerFile() throws Exception {
        File whole = new File(CHAT_MODEL);
        String expected = answerFrom(whole, 0, 0);
        assertNotEquals("", expected);
        for (int lead : new int[] {64, 4096 + 64, 65536, 100}) {
            assertEquals(expected, answerFrom(embedded(lead), lead, whole.length()));
        }
    }

    @Test
    public void planTellsOfACopy() throws Exception {
        for (int lead : new int[] {128, 100}) {
            withDescriptor(embedded(lead), descriptor -> {
                ChatEngine engine = new ChatEngine(descriptor, lead, new File(CHAT_MODEL).length(), 64, 1);
                String plan = engine.planText();
                assertTrue(plan, plan.startsWith("Context of 64 tokens, 1 threads"));
                assertEquals(plan, lead % 64 != 0, plan.contains("copy of the file"));
                assertTrue(engine.totalBytes() > 0);
                engine.close();
            });
        }
    }

    @Test
    public void stopIsAtOnceAndTheNextAnswerIsWhole() throws Exception {
        ChatEngine engine = loaded(200);
        assertNotEquals("", answer(engine, "hello", 3));
        assertTrue(answer(engine, "hello", 0).length() > 3);
        engine.close();
    }

    @Test
    public void textThatWasNotReadLeavesTheConversationAsItWas() throws Exception {
        ChatEngine engine = loaded(200);
        String first = answer(engine, "hello", 0);
        assertEquals(Arrays.asList("hello", first), engine.conversation());
        engine.prepareAnswer();
        engine.stop(); // before the prompt is read
        engine.answer("stopped", null, piece -> fail("an answer: " + piece));
        assertEquals(Arrays.asList("hello", first), engine.conversation());
        StringBuilder huge = new StringBuilder();
        for (int i = 0; i < 300; ++i) huge.append("too long ");
        try {
            answer(engine, huge.toString(), 0);
            fail("a text longer than the context");
        } catch (LinnetException e) {
            assertEquals(5, e.status()); // LINNET_CONTEXT_FULL
        }
        assertEquals(Arrays.asList("hello", first), engine.conversation());
        answer(engine, "again", 0);
        List<String> roles = engine.conversation();
        assertEquals(0, roles.size() % 2);
        assertEquals("again", roles.get(roles.size() - 2));
        engine.close();
    }

    @Test
    public void conversationIsRestoredWordForWord() throws Exception {
        ChatEngine engine = loaded(200);
        List<String> texts = Arrays.asList("hello \ud83d\ude00", "an answer", "more", "");
        engine.restore(texts);
        assertEquals(texts, engine.conversation());
        assertNotEquals("", answer(engine, "go on", 0));
        engine.close();
    }

    @Test
    public void characterInSeveralTokensComesWhole() throws Exception {
        withDescriptor(new File(CHAT_MODEL), descriptor -> {
            long model = Linnet.openModel(descriptor, 0, 0);
            long decoder = Linnet.createDecoder(model, 2);
            int[] ids = Linnet.tokenize(model, Linnet.bytes("a\u00e9\ud83d\ude00"), 0);
            assertArrayEquals(new int[] {'a', 0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80}, ids);
            List<String> pieces = new ArrayList<>();
            for (int id : ids) pieces.add(Linnet.text(Linnet.push(decoder, id)));
            assertEquals(Arrays.asList("a", "", "\u00e9", "", "", "", "\ud83d\ude00"), pieces);
            Linnet.push(decoder, 0xf0);
            assertEquals("\ufffd", Linnet.text(Linnet.flush(decoder)));
            Linnet.freeDecoder(decoder);
            Linnet.freeModel(model);
        });
    }

    @Test
    public void rangeThatTheFileDoesNotHaveIsRefused() throws Exception {
        long all = new File(CHAT_MODEL).length();
        long[][] ranges = {{0, all + 1}, {all, 0}, {-1, 0}, {64, all}, {0, Long.MAX_VALUE}};
        withDescriptor(new File(CHAT_MODEL), descriptor -> {
            for (long[] range : ranges) {
                try {
                    Linnet.freeModel(Linnet.openModel(descriptor, range[0], range[1]));
                    fail(range[0] + ", " + range[1]);
                } catch (LinnetException e) {
                    assertTrue(e.getMessage(), !e.getMessage().isEmpty() && !e.getMessage().contains("\n"));
                }
            }
        });
    }

    @Test
    public void failuresAreExceptionsWithOneLine() throws Exception {
        try {
            new ChatEngine(-1, 0, 0, 0, 0);
            fail("a descriptor that is none");
        } catch (LinnetException e) {
            assertEquals(6, e.status()); // LINNET_IO_ERROR
            assertTrue(e.getMessage(), e.getMessage().contains("Bad file descriptor"));
        }
        withDescriptor(new File(CHAT_MODEL), descriptor -> {
            long model = Linnet.openModel(descriptor, 0, 0);
            try {
                Linnet.createSession(model, 0, 1);
                fail("a session before load");
            } catch (LinnetException e) {
                assertTrue(e.getMessage(), e.getMessage().contains("linnet_model_load"));
            }
            try {
                Linnet.load(model, Linnet.bytes(folder.newFolder().getPath()), (done, total) -> {
                    throw new IllegalStateException("from progress");
                });
                fail("progress that throws");
            } catch (IllegalStateException e) {
                assertEquals("from progress", e.getMessage());
            }
            try {
                Linnet.load(model, Linnet.bytes(folder.newFolder().getPath()), (done, total) -> false);
                fail("a loading that was stopped");
            } catch (LinnetException e) {
                assertEquals(LinnetException.CANCELLED, e.status());
            }
            assertArrayEquals(new int[] {'a', 0xc3, 0xa9}, Linnet.tokenize(model, Linnet.bytes("a\u00e9"), 0));
            Linnet.freeModel(model);
        });
    }
}
