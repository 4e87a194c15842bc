import type { DeepPartial, Linux } from '../../../src/gen/oci.ts'
import type { AgentConnection } from '../host/agent-process.ts'

/** The limit of processes below which it has to stay, as part of a container. */
export function bombLinux(limit: bigint): DeepPartial<Linux> {
  return { Resources: { Pids: { Limit: limit } } }
}

/** Starts itself for ever: awk goes on when a fork fails, so each process that is killed makes room for one more. */
const BOMB = 'BEGIN { for (;;) system("awk -f /tmp/bomb 2>/dev/null &") }'

/** What a container with the limit runs. Its first process takes no notice of SIGTERM, and is no part of it. */
export const FORK_BOMB = [
  'sh',
  '-c',
  `trap "" TERM; echo '${BOMB}' > /tmp/bomb; awk -f /tmp/bomb 2>/dev/null & while :; do read line; done`,
]

/**
 * What the container runs in whose pid namespace the bomb is: its own would take everybody with its first process. A
 * shell that reaps all the time: only what was reaped makes room for more.
 */
export const BOMB_OWNER = ['sh', '-c', 'while :; do usleep 1000; done']

/** Resolves when the container has as many processes as it may. */
export async function explosion(
  agent: AgentConnection['agent'],
  containerId: string,
  limit: bigint,
): Promise<void> {
  for (let current = 0n; current < limit; ) {
    const { cgroupStats } = await agent.statsContainer({ containerId })
    current = cgroupStats?.pidsStats?.current ?? 0n
  }
}
