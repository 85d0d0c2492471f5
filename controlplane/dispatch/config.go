package dispatch

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/lease"
)

// Protocol versions of proto/heddle/executor/v1 that this control plane speaks.
const (
	MinProtocol = 1
	MaxProtocol = 1
)

const (
	registerWait = 10 * time.Second
	sendQueue    = 4096     // messages per session
	sendBytes    = 16 << 20 // bytes per session
	stdinPiece   = 128 << 10
	stdinBound   = 1 << 20 // bytes of standard input not yet known to be received
	maxOrphans   = 8192
	maxFence     = 24 * time.Hour
	deathPoll    = 20 * time.Millisecond
	deathPolls   = 150
)

// Config configures a Dispatcher. The zero value of every field has a meaning.
type Config struct {
	// Epochs hands out fencing numbers; nil counts in memory, and then no lease
	// survives a restart.
	Epochs lease.Epochs
	// FenceAfter is the time after which the commands of a silent executor have
	// ended and its scopes are free, the skew included; 0 means 30 s. Executors
	// are told FenceAfter - Skew.
	FenceAfter time.Duration
	// Skew is the part of FenceAfter that is kept back for the difference of
	// clocks; 0 means a tenth of it.
	Skew time.Duration
	// Grace is how long after a start executors may come back with what they
	// hold; 0 means FenceAfter.
	Grace time.Duration
	// Wait is how long an action waits for an executor to be there; 0 means 10 s.
	Wait time.Duration
	// OutboxWait is how long an executor that came back without a started action
	// has to send its result; 0 means 5 s.
	OutboxWait time.Duration
	// QueueLimit bounds the waiting actions; 0 means 1024.
	QueueLimit int
	// Window of unacknowledged output bytes per action; 0 means 1 MiB.
	Window int64
	// Capacity of an executor that names none; 0 means 256 actions.
	Capacity int
	// JoinToken that executors must show; empty means none is asked for.
	JoinToken string
	// Version of the control plane, told to executors.
	Version string
	// NewID makes session and lease ids; nil means UUID version 7.
	NewID func() string
	// Clock is the time; nil means time.Now.
	Clock func() time.Time
	// Jitter returns a number in [0,1); nil means math/rand.
	Jitter func() float64
	// Logger; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	setDuration(&c.FenceAfter, 30*time.Second)
	setDuration(&c.Skew, c.FenceAfter/10)
	setDuration(&c.Grace, c.FenceAfter)
	setDuration(&c.Wait, 10*time.Second)
	setDuration(&c.OutboxWait, 5*time.Second)
	if c.Skew >= c.FenceAfter {
		return c, errors.New("dispatch config: skew must be below fence_after")
	}
	if c.QueueLimit <= 0 {
		c.QueueLimit = 1024
	}
	if c.Window <= 0 {
		c.Window = 1 << 20
	}
	if c.Capacity <= 0 {
		c.Capacity = 256
	}
	if c.Epochs == nil {
		c.Epochs = &lease.Counter{}
	}
	if c.NewID == nil {
		c.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func setDuration(d *time.Duration, to time.Duration) {
	if *d <= 0 {
		*d = to
	}
}

// renewEvery is the mean time between renewals.
func (c *Config) renewEvery() time.Duration { return c.FenceAfter / 6 }

// renewBy is how long either side waits for a sign of life.
func (c *Config) renewBy() time.Duration { return c.FenceAfter / 2 }
