import { runInOwnSession } from '../../../scripts/setup/run-in-own-session.mjs'

process.exitCode = await runInOwnSession(process.argv.slice(2))
