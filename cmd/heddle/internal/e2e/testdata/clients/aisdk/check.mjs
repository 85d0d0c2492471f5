// Runs the unmodified app-server provider of the AI SDK against heddle.
// Arguments: path of heddle, workspace. Prints "ok" when everything was as it
// should be.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { createCodexAppServer, listModels } from "ai-sdk-provider-codex-app-server";
import { generateText, jsonSchema, Output, streamText } from "ai";

const [heddle, workspace] = process.argv.slice(2);
let session;
const settings = {
  codexPath: heddle,
  cwd: workspace,
  approvalMode: "never",
  sandboxMode: "workspace-write",
  onSessionCreated: (s) => { session = s; },
};

const { models, defaultModel } = await listModels({ codexPath: heddle });
assert.ok(models.length > 0 && defaultModel);

// generateText(): the answer of one turn, twice in one thread.
const model = createCodexAppServer({ defaultSettings: settings })("mock-model");
const first = await generateText({ model, prompt: "say HELLO" });
assert.equal(first.text, "hello there");
assert.equal(first.finishReason, "stop");
const thread = session.threadId;
assert.equal((await generateText({ model, prompt: "say HELLO" })).text, "hello there");
assert.equal(session.threadId, thread);

// streamText(): a command and a file change as tool calls with results.
const stream = streamText({ model, prompt: "please PATCH" });
const parts = [];
for await (const part of stream.fullStream) parts.push(part);
assert.equal(await stream.text, "patched");
const results = parts.filter((p) => p.type === "tool-result");
assert.deepEqual(results.map((r) => r.toolName), ["exec", "patch"]);
assert.equal(results[0].output.aggregatedOutput, "before\n");
assert.equal(results[0].output.exitCode, 0);
assert.equal(results[1].output.status, "completed");
assert.equal(fs.readFileSync(path.join(workspace, "patched.txt"), "utf8"), "new\n");

// A structured answer.
const shaped = await generateText({
  model,
  prompt: "give SHAPE",
  output: Output.object({ schema: jsonSchema({
    type: "object", properties: { a: { type: "string" } }, required: ["a"], additionalProperties: false,
  }) }),
});
assert.deepEqual(shaped.output, { a: "b" });

// interrupt() ends the turn and the stream.
const slow = streamText({ model, prompt: "be SLOW" });
let interrupted = false;
for await (const part of slow.fullStream) {
  if (part.type === "tool-call") {
    assert.ok(session.isActive());
    await session.interrupt();
    interrupted = true;
  }
}
assert.ok(interrupted && !session.isActive());
model.dispose();

// A later process goes on with the same thread.
const resumed = createCodexAppServer({ defaultSettings: { ...settings, resume: thread } })("mock-model");
assert.equal((await generateText({ model: resumed, prompt: "say HELLO" })).text, "hello there");
assert.equal(session.threadId, thread);

// What is said while a turn runs reaches the model.
const steered = streamText({ model: resumed, prompt: "please WAIT" });
for await (const part of steered.fullStream) {
  if (part.type === "tool-call") await session.injectMessage("and then say HELLO");
}
assert.equal(await steered.text, "hello there");
resumed.dispose();

// A failed turn ends with an error.
const failing = createCodexAppServer({ defaultSettings: { ...settings, threadMode: "stateless" } })("mock-model");
assert.notEqual((await generateText({ model: failing, prompt: "nothing is scripted" })).finishReason, "stop");
failing.dispose();

console.log("ok");
