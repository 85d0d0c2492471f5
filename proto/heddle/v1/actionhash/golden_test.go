package actionhash_test

const (
	goldenProcess = "3e948835496e3127be2bed4807ef45be8be2d196f05924c139acd42e5f494969"
	goldenPatch   = "351eedf79759a87b18be1b735d913f18ed31b79d93b4dd3796e1cd8691257eca"
	goldenStdin   = "0d38a68d0951177bd0d21d707188bcfbb3432a889f3e500ed47166b038981c7e"
)
