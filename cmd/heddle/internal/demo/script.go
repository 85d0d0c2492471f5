package demo

import "fmt"

// Marks by which the demo finds its commands among the recorded items.
const (
	markTest    = "sh slug_test.sh"
	markWrite   = "echo escaped >"
	markConnect = "/dev/tcp/127.0.0.1/"
	// patched is what only the fixed program has.
	patched = "tr '[:upper:]' '[:lower:]' | tr -s ' ' '-'"
)

// script is what the scripted model says and does. Its words claim nothing that
// it did not see: each later reply waits for the output that it speaks of.
func script(p *place, port int) []byte {
	return fmt.Appendf(nil, `# What "the model" of heddle demo says. Everything that its tools do is real.
replies:
  - steps:
      - say: "I will read the program, then run its test."
        phase: commentary
      - call: update_plan
        args:
          plan:
            - {step: "See the test fail", status: in_progress}
            - {step: "Fix slug.sh", status: pending}
            - {step: "See the test pass", status: pending}
            - {step: "Try to leave the sandbox", status: pending}
      - call: exec_command
        args: {cmd: "cat slug.sh"}
      - call: exec_command
        args: {cmd: %[1]q}

  - when: {output: "FAIL  "}
    steps:
      - say: "Capital letters stay and repeated spaces become several dashes. Both are one tr each."
        phase: commentary
      - patch: |
          *** Begin Patch
          *** Update File: slug.sh
          @@
           # Prints a title in the form that is used in a URL.
          -printf '%%s\n' "$1" | tr ' ' '-'
          +printf '%%s\n' "$1" | %[2]s
          *** End Patch

  - when: {output: "slug.sh"}
    steps:
      - call: exec_command
        args: {cmd: %[1]q}

  - when: {output: "is 'hello-world'"}
    steps:
      - call: update_plan
        args:
          plan:
            - {step: "See the test fail", status: completed}
            - {step: "Fix slug.sh", status: completed}
            - {step: "See the test pass", status: completed}
            - {step: "Try to leave the sandbox", status: in_progress}
      - say: "The test passes. Now I try to write a file outside of the workspace and to connect to a port that is open on this machine."
        phase: commentary
      - call: exec_command
        args: {cmd: %[3]q}
      - call: exec_command
        args: {cmd: %[4]q}

  - steps:
      - say: "slug.sh now turns capitals into small letters and any run of spaces into one dash; its test passes. The two attempts to leave the sandbox are above, with what became of them."
        phase: final_answer
`, markTest, patched, markWrite+" "+p.outside, "bash -c 'exec 3<>"+markConnect+fmt.Sprint(port)+"'")
}
