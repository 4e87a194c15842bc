import type { DeepPartial, Linux } from '../../../src/gen/oci.ts'
import type { AgentConnection } from '../host/agent-process.ts'

export function bombLinux(limit: bigint): DeepPartial<Linux> {
  return { Resources: { Pids: { Limit: limit } } }
}

/** Starts itself forever: awk continues when a fork fails, so each killed process makes room for another one. */
const BOMB = 'BEGIN { for (;;) system("awk -f /tmp/bomb 2>/dev/null &") }'

/** The command of a container with the limit. Its first process ignores SIGTERM and is not part of the bomb. */
export const FORK_BOMB = [
  'sh',
  '-c',
  `trap "" TERM; echo '${BOMB}' > /tmp/bomb; awk -f /tmp/bomb 2>/dev/null & while :; do read line; done`,
]

/**
 * In the bomb's own pid namespace, the end of the first process would kill all others. This shell lends its namespace and
 * keeps reaping, because only a reaped process makes room for another one.
 */
export const BOMB_OWNER = ['sh', '-c', 'while :; do usleep 1000; done']

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
