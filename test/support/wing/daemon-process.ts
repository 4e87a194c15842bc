import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { projectRoot } from '../../../src/build/project.ts'
import { hasLogged } from '../processes.ts'

/** Starts `./microvm daemon`, or another program with its words, below the words of `enter`, and resolves once it serves. Rejects with its log when it ends before. */
export async function startDaemonProcess(
  state: string,
  {
    enter = [],
    words = [],
    env: changed = {},
    main = 'src/microvm/main.ts',
  }: {
    readonly enter?: readonly string[]
    /** Of the daemon, besides. */
    readonly words?: readonly string[]
    readonly env?: Readonly<Record<string, string>>
    /** Of the project. */
    readonly main?: string
  } = {},
): Promise<ChildProcess> {
  const path = join(projectRoot, main)
  const [program = '', ...argv] = [...enter, process.execPath, path, 'daemon', '--state', state, ...words]
  const env = { ...process.env, ...changed, MICROVM_ACCEL: 'tcg' }
  const daemon = spawn(program, argv, { env, stdio: ['ignore', 'ignore', 'pipe'] })
  await hasLogged(daemon, '"msg":"serving"', 'the daemon')
  return daemon
}
