import { readFileSync } from 'node:fs'
import type { AgentConnection, AgentProcess } from '../host/agent-process.ts'
import type { Target } from './attack.ts'

/** An agent on this machine; its checks have their own connection, which `close` ends. */
export async function hostTarget(started: AgentProcess): Promise<Target & Pick<AgentConnection, 'close'>> {
  const { health, close } = await started.connect()
  return {
    where: 'host',
    check: () => health.check({}),
    residentMib: () => residentMib(started.agentPid()),
    close,
  }
}

function residentMib(pid: number): number {
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kib) / 1024
}
