import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { type TtrpcClient, ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { endChild } from '../../../test/support/processes.ts'
import { giveAgentPriority } from '../bench-pod.ts'
import { benchEnvironment } from '../figure.ts'

export interface BareServers {
  /** Starts a script of this folder, and returns its pid once it has printed something. */
  startNode(script: string, ...args: readonly string[]): Promise<number>
  /** A bare ttRPC server with answers of these sizes, behind a C program that copies as the connection broker does. */
  startRelayed(sizes: readonly number[]): Promise<{ client: TtrpcClient; pids: readonly number[] }>
  stop(): Promise<void>
}

export function bareServers(folder: string): BareServers {
  const programs: ChildProcess[] = []
  const start = async (program: string, args: readonly string[]) => {
    const child = spawn(program, args, { env: benchEnvironment(), stdio: ['ignore', 'pipe', 'inherit'] })
    programs.push(child)
    await once(child.stdout, 'data')
    const { pid } = child
    if (pid === undefined) throw new Error(`${program} could not be started`)
    giveAgentPriority(pid)
    return pid
  }
  const startNode: BareServers['startNode'] = (script, ...args) =>
    start(process.execPath, [join(import.meta.dirname, script), ...args])
  return {
    startNode,
    async startRelayed(sizes) {
      const own = join(folder, 'bare.sock')
      const relayed = join(folder, 'relayed.sock')
      const program = join(folder, 'relay')
      const server = await startNode('ttrpc-bare-server.ts', own, ...sizes.map(String))
      execFileSync('cc', ['-O2', '-o', program, join(import.meta.dirname, 'relay.c')])
      const relay = await start(program, [relayed, own])
      const socket = connect(relayed)
      await once(socket, 'connect')
      return { client: ttrpcClient(socket), pids: [server, relay] }
    },
    stop: async () => {
      for (const program of programs) await endChild(program, 'SIGKILL')
    },
  }
}
