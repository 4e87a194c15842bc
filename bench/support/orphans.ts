import { execFileSync, spawn } from 'node:child_process'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { makeTemporaryFolder, removeTemporaryFolder } from '../../src/build/temporary-folder.ts'
import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { listenForOne } from '../../test/support/host/host-ports.ts'
import { benchEnvironment } from './figure.ts'

/** The program of orphans.c. */
export interface Orphans {
  /** Returns the milliseconds until all of `count` orphans were reaped. */
  end(count: number): Promise<number>
  close(): void
}

/**
 * Starts the program as a child of vminit, which reaps its orphans. It is left behind by a hook, which runs outside of its
 * container: in a container, whose pid namespace is its own, the first process would reap them.
 */
export function startOrphansOf(pod: AgentPod): Promise<Orphans> {
  return start(async (program, socket) => {
    const script = `${program} ${socket} < /dev/null > /dev/null 2>&1 &`
    const hook = { Path: '/bin/sh', Args: ['sh', '-c', script] }
    const init = await pod.run('orphans', ['/bin/true'], { spec: { Hooks: { Poststart: [hook] } } })
    await init.wait()
    await pod.remove('orphans')
  })
}

/** Starts the program so that it reaps its orphans itself. */
export function startOwnOrphans(): Promise<Orphans> {
  return start(async (program, socket) => {
    spawn(program, [socket, 'own'], { stdio: ['ignore', 'ignore', 'inherit'], env: benchEnvironment() })
  })
}

async function start(run: (program: string, socket: string) => Promise<void>): Promise<Orphans> {
  const folder = makeTemporaryFolder(tmpdir())
  const [program, path] = [join(folder, 'orphans'), join(folder, 'socket')]
  execFileSync('cc', ['-O2', '-static', '-o', program, join(import.meta.dirname, 'orphans.c')])
  const host = await listenForOne(path)
  await run(program, path)
  const socket = await host.connection
  const answers = createInterface(socket)[Symbol.asyncIterator]()
  return {
    end: async (count) => {
      socket.write(`${count}\n`)
      const { value, done } = await answers.next()
      if (done === true) throw new Error(`${count} orphans were not reaped in time`)
      return Number(value) / 1000
    },
    close: () => {
      socket.destroy()
      removeTemporaryFolder(folder)
    },
  }
}
