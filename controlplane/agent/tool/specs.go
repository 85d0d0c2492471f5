package tool

import "github.com/heddle-dev/heddle/controlplane/agent/model"

// Specs returns the tools to offer, in a fixed order, so that a request's prefix
// stays the same from step to step.
func Specs(o Options) []model.Tool {
	var tools []model.Tool
	if !o.NoEnvironment {
		tools = append(tools, execCommandSpec(o.Escalation), writeStdinSpec())
	}
	if o.UpdatePlan {
		tools = append(tools, updatePlanSpec())
	}
	if o.RequestUserInput {
		tools = append(tools, requestUserInputSpec())
	}
	if o.RequestPermissions {
		tools = append(tools, requestPermissionsSpec())
	}
	switch {
	case o.FreeformPatch:
		tools = append(tools, model.Tool{Kind: model.ToolFreeform, Name: NameApplyPatch, Description: patchDescription + " Write the patch as it is; do not wrap it in JSON.", Grammar: patchGrammar})
	case o.FunctionPatch:
		tools = append(tools, function(NameApplyPatch, patchDescription+patchFormat, object(props{"input": text("The whole patch, from *** Begin Patch to *** End Patch.")}, "input")))
	}
	if o.ViewImage {
		tools = append(tools, function(NameViewImage, "Look at an image file of the workspace.", object(props{"path": text("Path of the image file, absolute or relative to the working folder.")}, "path")))
	}
	if o.Agents {
		tools = append(tools, agentSpecs()...)
	}
	if o.Goals {
		tools = append(tools, goalSpecs()...)
	}
	if o.WebSearch != "" {
		tools = append(tools, model.Tool{Kind: model.ToolWebSearch, Name: "web_search", Search: o.WebSearch})
	}
	return append(tools, o.Extra...)
}

// Offers reports whether Specs(o) has a built-in tool of this name.
func (o Options) Offers(name string) bool {
	switch name {
	case NameExecCommand, NameWriteStdin:
		return !o.NoEnvironment
	case NameApplyPatch:
		return o.FreeformPatch || o.FunctionPatch
	case NameUpdatePlan:
		return o.UpdatePlan
	case NameViewImage:
		return o.ViewImage
	case NameRequestUserInput:
		return o.RequestUserInput
	case NameRequestPermissions:
		return o.RequestPermissions
	case NameGetGoal, NameCreateGoal, NameUpdateGoal:
		return o.Goals
	}
	return false
}

type props map[string]any

func function(name, description string, parameters map[string]any) model.Tool {
	return model.Tool{Kind: model.ToolFunction, Name: name, Description: description, Parameters: parameters}
}

func object(p props, required ...string) map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any(p), "required": required, "additionalProperties": false}
}

func typed(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

func text(description string) map[string]any { return typed("string", description) }

func listOf(item map[string]any, description string) map[string]any {
	return map[string]any{"type": "array", "items": item, "description": description}
}

func execCommandSpec(escalation bool) model.Tool {
	p := props{
		"cmd":               text("Shell command to run."),
		"workdir":           text("Folder to run it in; the working folder of the turn when left out."),
		"shell":             text("Shell program to use; the user's shell when left out."),
		"login":             typed("boolean", "Whether the shell reads the login profile; true when left out."),
		"tty":               typed("boolean", "Whether the command gets a terminal and can be typed to with write_stdin; false (no stdin) when left out."),
		"yield_time_ms":     typed("number", "Milliseconds to wait for the command before its output so far is returned; 10000 when left out."),
		"max_output_tokens": typed("number", "Largest number of tokens of output to return; the middle of a longer output is cut out."),
	}
	if escalation {
		p["sandbox_permissions"] = map[string]any{
			"type": "string", "enum": []string{"use_default", "require_escalated"},
			"description": "\"require_escalated\" asks the user to run this command outside the sandbox; \"use_default\" when left out.",
		}
		p["justification"] = text("With require_escalated: one short question to the user that says why the command must leave the sandbox.")
		p["prefix_rule"] = listOf(map[string]any{"type": "string"}, "With require_escalated: a prefix of the command that the user may allow for good, such as [\"npm\", \"install\"].")
	}
	return function(NameExecCommand, "Runs a shell command. Returns its output and exit code, or a session id when it is still running.", object(p, "cmd"))
}

func writeStdinSpec() model.Tool {
	return function(NameWriteStdin, "Types into a command that is still running, or waits for it, and returns its new output.", object(props{
		"session_id":        typed("number", "Session id of the running command."),
		"chars":             text("Characters to type; leave empty only to wait."),
		"yield_time_ms":     typed("number", "Milliseconds to wait for output."),
		"max_output_tokens": typed("number", "Largest number of tokens of output to return."),
	}, "session_id"))
}

func updatePlanSpec() model.Tool {
	step := object(props{
		"step":   text("What is to be done."),
		"status": map[string]any{"type": "string", "enum": []string{"pending", "in_progress", "completed"}},
	}, "step", "status")
	return function(NameUpdatePlan, "Shows the user the plan of your work. Send the whole list each time; at most one step is in_progress.", object(props{
		"explanation": text("Why the plan changed; optional."),
		"plan":        listOf(step, "All steps in order."),
	}, "plan"))
}

func requestUserInputSpec() model.Tool {
	option := object(props{
		"label":       text("One to five words."),
		"description": text("One sentence on what choosing it means."),
	}, "label", "description")
	question := object(props{
		"id":       text("Stable name of the question in snake_case."),
		"header":   text("Title of at most 12 characters."),
		"question": text("The question, in one sentence."),
		"options":  listOf(option, "Two or three answers to choose from, the recommended one first. The user can always write another."),
	}, "id", "header", "question", "options")
	return function(NameRequestUserInput, "Asks the user one to three short questions and waits for the answers. Works in plan mode only.", object(props{
		"questions": listOf(question, "Questions to ask, at most three."),
	}, "questions"))
}

const patchDescription = "Changes files with a patch. Use it for every edit of a file."

// patchFormat explains the format where no grammar can be given.
const patchFormat = `
A patch is:
*** Begin Patch
one or more file sections
*** End Patch
A file section starts with one of
*** Add File: PATH       followed by the lines of the new file, each with + in front
*** Delete File: PATH    followed by nothing
*** Update File: PATH    optionally followed by *** Move to: PATH, then by changes
A change starts with @@ (optionally with a line of the file, such as a function's head, to find the place) and has lines that begin with
a space (unchanged), - (removed) or + (added). Give about three unchanged lines around each change. A line *** End of File after a change ties
it to the end of the file. Paths are relative to the working folder.`

// patchGrammar is the same format in Lark.
const patchGrammar = `start: opening section+ closing
opening: "*** Begin Patch" LF
closing: "*** End Patch" LF?

section: added_file | deleted_file | updated_file
added_file: "*** Add File: " path LF new_line+
deleted_file: "*** Delete File: " path LF
updated_file: "*** Update File: " path LF new_path? edits?
new_path: "*** Move to: " path LF
path: /(.+)/
new_line: "+" /(.*)/ LF

edits: (place | edit_line)+ at_end?
place: ("@@" | "@@ " /(.+)/) LF
edit_line: ("+" | "-" | " ") /(.*)/ LF
at_end: "*** End of File" LF

%import common.LF
`
