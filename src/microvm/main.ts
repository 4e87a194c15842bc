import { runCommand } from './run/run-command.ts'
import { runTool } from './run-tool.ts'

process.exit(await runTool(process.argv.slice(2), runCommand))
