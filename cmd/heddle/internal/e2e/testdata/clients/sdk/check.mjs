// Runs the unmodified TypeScript SDK against heddle. Arguments: path of heddle,
// workspace. Prints "ok" when everything was as it should be.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { Codex } from "@openai/codex-sdk";

const [heddle, workspace] = process.argv.slice(2);
const codex = new Codex({ codexPathOverride: heddle });
const options = { workingDirectory: workspace, sandboxMode: "workspace-write", model: "mock-model" };

// run(): one turn, its answer and usage.
const thread = codex.startThread(options);
const turn = await thread.run("say HELLO");
assert.equal(turn.finalResponse, "hello there");
assert.ok(thread.id);
assert.ok(turn.usage.input_tokens > 0);

// runStreamed(): a command and a file change, each from start to end.
const { events } = await thread.runStreamed("PATCH it");
const seen = [];
for await (const event of events) {
  seen.push(event.item ? `${event.type} ${event.item.type}` : event.type);
  if (event.type === "item.completed" && event.item.type === "command_execution") {
    assert.equal(event.item.exit_code, 0);
    assert.equal(event.item.aggregated_output, "before\n");
    assert.equal(event.item.status, "completed");
  }
  if (event.type === "item.completed" && event.item.type === "file_change") {
    assert.equal(event.item.status, "completed");
    assert.deepEqual(event.item.changes.map((c) => c.kind), ["add"]);
  }
}
for (const want of ["thread.started", "turn.started", "item.started command_execution", "item.completed command_execution",
  "item.completed file_change", "item.completed agent_message", "turn.completed"]) {
  assert.ok(seen.includes(want), `no ${want} in ${seen}`);
}
assert.equal(fs.readFileSync(path.join(workspace, "patched.txt"), "utf8"), "new\n");

// resumeThread(): a later process goes on with the same thread.
const resumed = codex.resumeThread(thread.id, options);
const again = await resumed.run("say HELLO again");
assert.equal(again.finalResponse, "hello there");
assert.equal(resumed.id, thread.id);

// A structured answer asks with the schema; a failed turn throws its message.
const shaped = await codex.startThread(options).run("say HELLO", {
  outputSchema: { type: "object", properties: { a: { type: "string" } }, required: ["a"], additionalProperties: false },
});
assert.equal(shaped.finalResponse, "hello there");
await assert.rejects(codex.startThread(options).run("nothing is scripted"), /no reply is scripted for this/);

// Abort ends the process and with it the turn.
const abort = new AbortController();
const running = codex.startThread(options).run("be SLOW", { signal: abort.signal });
setTimeout(() => abort.abort(), 1500);
await assert.rejects(running);

console.log("ok");
