import type { DeepPartial, Linux } from '../../src/gen/oci.ts'
import type { AgentConnection } from './agent-process.ts'

/** As many processes as {@link FORK_BOMB} may have, its first one included. */
const BOMB_LIMIT = 40n

/** The limit as part of a container. */
export const BOMB_LINUX: DeepPartial<Linux> = { Resources: { Pids: { Limit: BOMB_LIMIT } } }

/** Forks for ever: awk goes on when a fork fails, and forks again for each process that is killed. */
const FORKS = `awk 'BEGIN { for (;;) system("sleep 1000 &") }' 2>/dev/null &`

/** What a container with the limit runs. Its first process takes no notice of SIGTERM. */
export const FORK_BOMB = ['sh', '-c', `trap "" TERM; ${FORKS.repeat(4)} while :; do read line; done`]

/** Resolves when the container has as many processes as it may. */
export async function explosion(agent: AgentConnection['agent'], containerId: string): Promise<void> {
  for (let current = 0n; current < BOMB_LIMIT; ) {
    const { cgroupStats } = await agent.statsContainer({ containerId })
    current = cgroupStats?.pidsStats?.current ?? 0n
  }
}
