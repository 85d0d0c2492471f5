// Package boltstore is the default store.Store: one bbolt file per home.
//
// The bucket tree of schema 2 (numbers are big-endian, so that keys sort):
//
//	meta                       schema (u32), request (u64, the next approval
//	                           request id), "u/" + key (values of Meta)
//	rows                       thread id -> Thread
//	threads
//	  <thread id>              one bucket per thread
//	    head                   last seq, owner epoch, ordinal of the last turn
//	                           shared with the fork's source
//	    events                 first seq -> the events of one commit
//	    turns                  ordinal -> Turn
//	    turnids                turn id -> ordinal
//	    items                  turn ordinal, start seq -> end seq, Item
//	    itemids                item id -> key in items
//	    users                  key in items -> "", user messages only
//	    history                seq, index -> turn ordinal, HistoryEntry
//	    floors                 seq -> turn ordinal; the history starts anew
//	    approvals              approval id -> Approval
//	    queue                  Queue: what is to become the next turns
//	    attached               attachment id -> Attachment
//	    attachids              type, key -> attachment id
//	    open                   't' + turn id, 'i' + item id, 'a' + action id,
//	                           'p' + approval id: what has begun and not ended;
//	                           'q': a message is to be taken up
//	created, updated           principal, archived, time, thread id -> filter
//	text                       thread id -> folded name and preview
//	open                       thread id -> "", threads whose open is not empty
//	forks                      source id, 0, fork id -> ""
//	groups                     principal, 's' section or 'p' project, archived,
//	                           position or time of update, thread id -> filter
//	owners                     principal, type and key of an attachment, thread
//	                           id -> ""
//	records                    principal, kind, id -> a value of the principal
//	trash                      thread id -> bucket of a thread that is being
//	                           removed in steps
//
// Every record is a frame: CRC-32C, format version, body. A frame that does not
// verify is skipped, counted and logged; in the event log it shows as a gap.
//
// One writer commits at a time, each commit is one transaction. The freelist is
// synced as an array; reads never hold a transaction after they return. The
// file is locked while it is open.
package boltstore
