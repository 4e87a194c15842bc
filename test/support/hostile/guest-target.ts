import { AgentError } from '../../../src/base/errors.ts'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { agentOf } from '../../../src/client/container/container-session.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TestGuest } from '../vm/boot-guest.ts'
import type { Target } from './attack.ts'

/** An agent in a guest that may die: each check dials anew, and once more after a lost connection. */
export function guestTarget({ guest }: TestGuest): Target {
  let residentMib = 0
  const check = async () => {
    const connection = await connectAgent(guest, guest.vm.gone)
    try {
      await clientFor(HealthDefinition, connection).check({})
      const { metrics } = await agentOf(connection).getMetrics({})
      residentMib = Number(/^kata_agent_total_rss (\S+)$/m.exec(metrics)?.[1]) / 2 ** 20
    } finally {
      connection.close()
    }
  }
  return {
    where: 'guest',
    check: () =>
      check().catch((error) => {
        if (error instanceof AgentError && error.code === 'UNAVAILABLE') return check()
        throw error
      }),
    residentMib: () => residentMib,
  }
}

export interface CountedTarget extends Target {
  answers(count: number): Promise<void>
}

/** The agent's memory changes slowly, and reading it takes longer than a check. */
const RESIDENT_EVERY_MS = 1000

/** An agent in a guest. All checks use one connection, as those of a host, and it must last. */
export function connectedTarget({ agent, health }: TestGuest): CountedTarget {
  let answered = 0
  const waits = new Set<{ readonly at: number; readonly resolve: () => void }>()
  let residentMib = 0
  let readMs = Number.NEGATIVE_INFINITY
  return {
    where: 'guest',
    check: async () => {
      await health.check({})
      answered += 1
      for (const wait of waits) {
        if (wait.at > answered) continue
        waits.delete(wait)
        wait.resolve()
      }
    },
    answers: (count) => new Promise((resolve) => waits.add({ at: answered + count, resolve })),
    residentMib: async () => {
      if (performance.now() - readMs < RESIDENT_EVERY_MS) return residentMib
      const { metrics } = await agent.getMetrics({})
      residentMib = Number(/^kata_agent_total_rss (\S+)$/m.exec(metrics)?.[1]) / 2 ** 20
      readMs = performance.now()
      return residentMib
    },
  }
}
