import { HealthDefinition } from '../../../src/gen/health.ts'
import { connectAgent } from '../../../src/microvm/connect-agent.ts'
import { agentOf } from '../../../src/microvm/run/container-session.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TestGuest } from '../vm/boot-guest.ts'
import type { Target } from './attack.ts'

/** An agent in a guest. Each check dials anew, so that the agent may die meanwhile. */
export function guestTarget({ guest: { link, vm } }: TestGuest): Target {
  let residentMib = 0
  return {
    where: 'guest',
    check: async () => {
      const connection = await connectAgent(link, vm.gone)
      await clientFor(HealthDefinition, connection).check({})
      const { metrics } = await agentOf(connection).getMetrics({})
      residentMib = Number(/^kata_agent_total_rss (\S+)$/m.exec(metrics)?.[1]) / 2 ** 20
      connection.close()
    },
    residentMib: () => residentMib,
  }
}
