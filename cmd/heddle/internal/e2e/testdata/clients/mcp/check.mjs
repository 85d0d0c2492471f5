// Runs the unmodified MCP client for TypeScript against `heddle mcp-server`.
// Arguments: path of heddle, workspace. Prints "ok" when all was as it should be.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [heddle, workspace] = process.argv.slice(2);

async function connect(options) {
  const client = new Client({ name: "check", version: "1" }, options);
  await client.connect(new StdioClientTransport({ command: heddle, args: ["mcp-server"], cwd: workspace, env: process.env }));
  return client;
}

// A client with elicitations is asked, and its answer counts.
const asked = [];
let answer = { action: "accept", content: {} };
const client = await connect({ capabilities: { elicitation: {} } });
client.setRequestHandler("elicitation/create", async (request) => {
  asked.push(request.params);
  return answer;
});
const { tools } = await client.listTools();
assert.deepEqual(tools.map((t) => t.name).sort(), ["codex", "codex-reply"]);

const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const steps = [];
const first = await call("codex", { prompt: "FIRST", "approval-policy": "on-request", sandbox: "workspace-write" }, {
  onprogress: (p) => steps.push(p.message),
});
assert.equal(first.content[0].text, "it was allowed");
assert.equal(first.structuredContent.content, "it was allowed");
assert.equal(asked.length, 1);
assert.match(asked[0].message, /without the sandbox\?/);
assert.ok(steps.some((s) => s.startsWith("runs ")), steps.join("\n"));

answer = { action: "decline" };
const threadId = first.structuredContent.threadId;
const second = await call("codex-reply", { threadId, prompt: "SECOND" });
assert.equal(second.content[0].text, "it was not");
assert.equal(asked.length, 2);

// A call that is given up ends its turn; the client goes on to use the thread.
const abort = new AbortController();
const slow = call("codex-reply", { threadId, prompt: "SLOW" }, { signal: abort.signal, onprogress: () => abort.abort("enough") });
await assert.rejects(slow);
const third = await call("codex-reply", { threadId, prompt: "HELLO" });
assert.equal(third.content[0].text, "hello there");

// Several at once.
const many = await Promise.all([1, 2, 3].map(() => call("codex", { prompt: "HELLO" })));
assert.equal(new Set(many.map((r) => r.structuredContent.threadId)).size, 3);
await client.close();

console.log("ok");
