"""Runs the unmodified Python SDK against heddle. Arguments: path of heddle,
workspace. Prints "ok" when everything was as it should be."""

import asyncio
import pathlib
import sys

from openai_codex import AsyncCodex, Codex, CodexConfig, Sandbox
from openai_codex.client import CodexClient

heddle, workspace = sys.argv[1:3]
config = CodexConfig(codex_bin=heddle, cwd=workspace)


def kinds(items):
    return [item.root.type for item in items]


def check_threads(codex):
    assert codex.metadata.serverInfo.version, codex.metadata
    assert codex.account().requires_openai_auth is False
    models = codex.models().data
    assert any(m.is_default for m in models), models

    thread = codex.thread_start(cwd=workspace, sandbox=Sandbox.workspace_write)
    result = thread.run("say HELLO")
    assert result.final_response == "hello there", result
    assert result.status.value == "completed" and result.usage.total.total_tokens > 0, result
    assert kinds(result.items) == ["userMessage", "agentMessage"], result.items

    result = thread.run("please PATCH")
    assert kinds(result.items) == ["userMessage", "commandExecution", "fileChange", "agentMessage"], result.items
    command = result.items[1].root
    assert command.aggregated_output == "before\n" and command.exit_code == 0, command
    assert pathlib.Path(workspace, "patched.txt").read_text() == "new\n"

    # What was done is read back, also by a later process.
    read = thread.read(include_turns=True).thread
    assert [len(turn.items) for turn in read.turns] == [2, 4], read
    thread.set_name("a name")
    listed = codex.thread_list().data
    assert [(t.id, t.name) for t in listed] == [(thread.id, "a name")], listed
    fork = codex.thread_fork(thread.id)
    assert fork.id != thread.id
    assert fork.run("say HELLO").final_response == "hello there"
    assert len(fork.read(include_turns=True).thread.turns) == 3
    codex.thread_archive(fork.id)
    assert [t.id for t in codex.thread_list(archived=True).data] == [fork.id]
    assert codex.thread_unarchive(fork.id).id == fork.id
    return thread.id


def check_running(codex):
    thread = codex.thread_start(cwd=workspace)
    try:
        thread.run("nothing is scripted")
    except RuntimeError as error:
        assert "no reply is scripted for this" in str(error), error
    else:
        raise AssertionError("a failed turn did not raise")

    turn = thread.turn("be SLOW")
    status = None
    for event in turn.stream():
        item = getattr(event.payload, "item", None)
        if event.method == "item/started" and item.root.type == "commandExecution":
            assert turn.steer("and this too").turn_id == turn.id
            turn.interrupt()
        if event.method == "turn/completed":
            status = event.payload.turn.status.value
    assert status == "interrupted", status


def check_approvals():
    """A client with a handler of its own is asked; what it answers is done."""
    for decision, marker in (("accept", "first"), ("decline", "second")):
        asked = []

        def handler(method, params):
            asked.append((method, params["command"]))
            return {"decision": decision}

        with CodexClient(config, approval_handler=handler) as client:
            client.initialize()
            thread = client.thread_start({"cwd": workspace, "approvalPolicy": "on-request"}).thread
            turn = client.turn_start(thread.id, f"ask {marker.upper()}").turn
            client.wait_for_turn_completed(turn.id)
        assert [method for method, _ in asked] == ["item/commandExecution/requestApproval"], asked
        exists = pathlib.Path(workspace).parent.joinpath(marker).exists()
        assert exists == (decision == "accept"), marker


async def check_async(thread_id):
    async with AsyncCodex(config) as codex:
        thread = await codex.thread_resume(thread_id)
        results = await asyncio.gather(
            thread.run("say HELLO"),
            (await codex.thread_start(cwd=workspace)).run("say HELLO"),
        )
        assert [r.final_response for r in results] == ["hello there"] * 2, results


with Codex(config) as codex:
    thread_id = check_threads(codex)
    check_running(codex)
check_approvals()
asyncio.run(check_async(thread_id))
print("ok")
