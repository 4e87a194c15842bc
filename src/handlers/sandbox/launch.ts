import type { UndoList } from '../../base/undo.ts'
import type { ProcessStreams, StartedProcess } from '../container/oci-runtime.ts'
import { ContainerProcess } from '../container/process.ts'
import { openPipes, type Stdio, terminalStdio } from '../container/stdio.ts'
import type { SandboxContext } from './context.ts'

/**
 * Starts a process through the runtime with streams of its own, and follows its exit. `start` runs the runtime;
 * when that fails nothing stays open. `undo` closes the streams.
 */
export async function launch(
  context: SandboxContext,
  hasTerminal: boolean,
  undo: UndoList,
  start: (streams: ProcessStreams) => Promise<StartedProcess>,
): Promise<ContainerProcess> {
  const { os, log } = context
  // Before the runtime runs: the process may have ended before its pid is known to us.
  const watch = os.exits.watch()
  try {
    const { pid, stdio } = hasTerminal ? await onTerminal(context, start) : await onPipes(context, start)
    undo.add('stdio', () => stdio.close())
    return new ContainerProcess({ pid, stdio, exit: watch.exitOf(pid), log })
  } finally {
    watch.close()
  }
}

interface Launched {
  readonly pid: number
  readonly stdio: Stdio
}

async function onTerminal(
  { os }: SandboxContext,
  start: (streams: ProcessStreams) => Promise<StartedProcess>,
): Promise<Launched> {
  const { pid, master } = await start('terminal')
  if (master === undefined) throw new Error('the runtime client returned no terminal')
  return { pid, stdio: terminalStdio(os, master) }
}

async function onPipes(
  { os, config }: SandboxContext,
  start: (streams: ProcessStreams) => Promise<StartedProcess>,
): Promise<Launched> {
  const { stdio, theirs, closeTheirs } = openPipes(os, config.containerPipeSizeBytes)
  try {
    const { pid } = await start({ pipes: theirs })
    return { pid, stdio }
  } catch (error) {
    stdio.close()
    throw error
  } finally {
    closeTheirs()
  }
}
