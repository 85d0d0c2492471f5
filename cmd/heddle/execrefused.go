package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// refusedFlags are flags of the reference's exec for what heddle does otherwise
// or does not have.
type refusedFlags struct {
	remote, remoteToken string
	worktree            bool
	cyberAccess         string
}

func (f *refusedFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.remote, "remote", "", "`address` of an app-server: refused, see --connect")
	fs.StringVar(&f.remoteToken, "remote-auth-token-env", "", "`variable` with a token for --remote: refused, see --connect and --tls-cert")
	fs.BoolVar(&f.worktree, "worktree", false, "run in a new git worktree: refused, make one and use --cd")
	fs.StringVar(&f.cyberAccess, "cyber-access-program", "", "access `program` of OpenAI: refused, heddle asks for none")
}

func (f *refusedFlags) check(fs *pflag.FlagSet) error {
	switch {
	case fs.Changed("remote"), fs.Changed("remote-auth-token-env"):
		return errors.New("--remote: heddle exec is no client of an app-server; give --connect with the address of the control plane instead")
	case f.worktree:
		return errors.New("--worktree: heddle makes no git worktrees; make one with git worktree add and give its folder to --cd")
	case fs.Changed("cyber-access-program"):
		return errors.New("--cyber-access-program: heddle asks for no access programs of a provider")
	}
	return nil
}
