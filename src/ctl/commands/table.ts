import type { Command } from '../command.ts'
import { callCommands } from './calls/commands.ts'
import { containerCommands } from './containers/commands.ts'
import { fileCommands } from './files/commands.ts'
import { observeCommands } from './observe/commands.ts'
import { toolCommands } from './tool/commands.ts'

/** The source of the help, the completions, the man page and docs/reference/agent-ctl.md. */
export const COMMANDS: readonly Command[] = [
  ...containerCommands,
  ...observeCommands,
  ...fileCommands,
  ...callCommands,
  ...toolCommands,
]
