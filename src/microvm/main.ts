import { runTool } from './run-tool.ts'

const status = await runTool(process.argv.slice(2), async (options, host) => {
  // The other commands need none of what builds and boots a guest.
  const { runCommand } = await import('./run/run-command.ts')
  return await runCommand(options, host)
})
process.exit(status)
