package actionhash_test

const (
	goldenProcess = "3e948835496e3127be2bed4807ef45be8be2d196f05924c139acd42e5f494969"
	goldenGit     = "4c4b008dadca9f3208f9365a1882805eb6b31b008dc8046dd920b41f5e4dfa1a"
	goldenPatch   = "351eedf79759a87b18be1b735d913f18ed31b79d93b4dd3796e1cd8691257eca"
	goldenStdin   = "0d38a68d0951177bd0d21d707188bcfbb3432a889f3e500ed47166b038981c7e"

	goldenProxied      = "75dea22c29573ba61549deb0de05edaae9ead78acbbd36ade32d0e5caa1089b6"
	goldenProxiedBare  = "e65a67a083c4ef82819f4f2c33f3ffe85d2b19ff4bc11ba2caf103ef7f630a36"
	goldenProxiedPatch = "8dad7891aacf5e3a8795870b4dca39bfefcab7f00b1195feea61df51da7eaae0"
)
