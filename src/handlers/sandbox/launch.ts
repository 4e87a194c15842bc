import { errnoOf } from '../../base/errors.ts'
import type { UndoList } from '../../base/undo.ts'
import type { Os } from '../../os/os.ts'
import type { ProcessStreams, StartedProcess } from '../container/oci-runtime.ts'
import { ContainerProcess } from '../container/process.ts'
import { openPipes, terminalStdio } from '../container/stdio.ts'
import type { SandboxContext } from './context.ts'

const SIGKILL = 9

/** A process about to be started. */
interface Launch {
  readonly hasTerminal: boolean
  /** Gets the undo of every step: the process is killed and its streams are closed. */
  readonly undo: UndoList
  /** Runs the runtime. */
  readonly start: (streams: ProcessStreams) => Promise<StartedProcess>
}

/** Starts a process through the runtime with streams of its own, and follows its exit. */
export async function launch(context: SandboxContext, process: Launch): Promise<ContainerProcess> {
  // Before the runtime runs: the process may have ended before its pid is known to us.
  const watch = context.os.exits.watch()
  const follow = (pid: number) => {
    const exit = watch.exitOf(pid)
    let isOver = false
    const over = () => {
      isOver = true
    }
    exit.then(over, over)
    process.undo.add('process', async () => {
      // The number of a process that was reaped may be another's by now.
      if (!isOver) kill(context.os, pid)
      await exit
    })
    return { pid, exit, log: context.log }
  }
  try {
    return process.hasTerminal
      ? await onTerminal(context, process, follow)
      : await onPipes(context, process, follow)
  } finally {
    watch.close()
  }
}

type Follow = (pid: number) => Omit<ConstructorParameters<typeof ContainerProcess>[0], 'stdio'>

async function onTerminal({ os }: SandboxContext, { start, undo }: Launch, follow: Follow) {
  const { pid, master } = await start('terminal')
  const followed = follow(pid)
  if (master === undefined) throw new Error('the runtime client returned no terminal')
  const stdio = terminalStdio(os, master)
  undo.add('stdio', () => stdio.close())
  return new ContainerProcess({ ...followed, stdio })
}

async function onPipes({ os, config }: SandboxContext, { start, undo }: Launch, follow: Follow) {
  const { stdio, theirs, closeTheirs } = openPipes(os, config.containerPipeSizeBytes)
  undo.add('stdio', () => stdio.close())
  try {
    const { pid } = await start({ pipes: theirs })
    return new ContainerProcess({ ...follow(pid), stdio })
  } finally {
    closeTheirs()
  }
}

/** A process that is gone is what is wanted. */
function kill(os: Os, pid: number): void {
  try {
    os.system.signal(pid, SIGKILL)
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error
  }
}
