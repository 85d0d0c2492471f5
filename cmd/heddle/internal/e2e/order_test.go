package e2e

import (
	"fmt"
	"strings"
)

// order checks what one client was shown of turns and items, in the order in
// which it came: I2 and P14 for every end-to-end test, whatever it does. A client
// that joined a turn in its middle has seen no beginning.
func order(messages []message) (faults []string) {
	began, ended := map[string]bool{}, map[string]bool{}
	met := map[string]bool{}                               // turns of which something was shown
	usage := map[string]string{}                           // the last one of a turn; who resumes or forks is shown it again
	terminals := map[string]bool{}                         // command items that have not completed
	opened, closed := map[string]bool{}, map[string]bool{} // items by turn and id
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, m := range messages {
		turn, _ := m.Params["turnId"].(string)
		item, _ := m.Params["item"].(map[string]any)
		id, _ := m.Params["itemId"].(string)
		if item != nil {
			id = fmt.Sprint(item["id"])
		}
		key := turn + " " + id
		switch {
		case m.ID != nil: // questions and answers are put again to who resumes
			continue
		case m.Method == "turn/started":
			turn = fmt.Sprint(turnOf(m)["id"])
			if began[turn] || ended[turn] || met[turn] {
				fault("turn/started of %s once more, after its end or after something of it", turn)
			}
			began[turn], met[turn] = true, true
		case m.Method == "turn/completed":
			turn = fmt.Sprint(turnOf(m)["id"])
			if ended[turn] {
				fault("turn/completed of %s once more", turn)
			}
			ended[turn], met[turn] = true, true
			for key := range opened {
				if strings.HasPrefix(key, turn+" ") && !closed[key] && !terminals[key] {
					fault("item %s is open at the end of its turn", key)
				}
			}
		case m.Method == "item/started":
			if ended[turn] || opened[key] {
				fault("item/started of %s once more or after the end of its turn", key)
			}
			opened[key], met[turn] = true, true
			terminals[key] = item["type"] == "commandExecution"
		case m.Method == "item/completed":
			if closed[key] || ended[turn] && !terminals[key] && opened[key] {
				fault("item/completed of %s once more or after the end of its turn", key)
			}
			closed[key], met[turn] = true, true
			delete(terminals, key)
		case strings.HasPrefix(m.Method, "item/") && id != "":
			if ended[turn] && opened[key] && !terminals[key] || closed[key] {
				fault("%s of %s after its end or that of its turn", m.Method, key)
			}
			met[turn] = true
		case m.Method == "thread/tokenUsage/updated" && turn != "":
			now := fmt.Sprint(m.Params["tokenUsage"])
			if ended[turn] && now != usage[turn] {
				fault("usage of %s after its end: %s after %s", turn, now, usage[turn])
			}
			usage[turn] = now
		}
	}
	return faults
}
