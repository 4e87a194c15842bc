import { AgentError, messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Os } from '../os/os.ts'
import type { AgentArguments } from './config/arguments.ts'
import type { Transport } from './transport/transport.ts'

export type StopReason = 'sandbox destroyed' | 'asked by vminit' | 'vminit is gone' | 'signal'

export async function stopRequested(
  os: Pick<Os, 'supervisor' | 'system'>,
  given: AgentArguments,
  sandboxDestroyed: Promise<void>,
): Promise<StopReason> {
  const reason = Promise.withResolvers<StopReason>()
  void sandboxDestroyed.then(() => reason.resolve('sandbox destroyed'))
  void os.supervisor.shutdownRequested.then((signal) =>
    reason.resolve(signal === 0 ? 'vminit is gone' : 'asked by vminit'),
  )
  // In a guest only vminit stops the agent, by a message on the channel.
  if (!given.init) {
    os.system.onSignal('SIGTERM', () => reason.resolve('signal'))
    os.system.onSignal('SIGINT', () => reason.resolve('signal'))
  }
  return reason.promise
}

interface Stopping {
  readonly os: Pick<Os, 'supervisor' | 'system'>
  readonly log: Logger
  readonly given: AgentArguments
  readonly transport: Transport
  readonly reason: StopReason
  readonly destroySandbox: () => Promise<void>
  readonly closeConsoles: () => Promise<void>
  /** Sends the remaining traces within a short time limit. */
  readonly stopTracing: () => Promise<void>
}

/**
 * Stops the sandbox, then the connections once their calls are answered, then the machine (in a guest) or the process.
 * Outside a guest a second signal ends the wait with status 1; in a guest vminit limits the time.
 */
export async function stopAgent(agent: Stopping): Promise<number> {
  const { log, os, given, reason } = agent
  log.info('stopping', { reason })
  const again = Promise.withResolvers<number>()
  if (!given.init) {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) os.system.onSignal(signal, () => again.resolve(1))
  }
  const status = await Promise.race([stopInOrder(agent), again.promise])
  log.info('stopped', { status })
  if (given.init) await os.supervisor.powerOff()
  return status
}

async function stopInOrder(agent: Stopping): Promise<number> {
  const { reason, destroySandbox, transport, stopTracing, log } = agent
  await agent.closeConsoles()
  if (reason !== 'sandbox destroyed') await destroyIfAny(destroySandbox, log)
  await transport.stop()
  await stopTracing()
  return 0
}

async function destroyIfAny(destroySandbox: () => Promise<void>, log: Logger): Promise<void> {
  try {
    await destroySandbox()
  } catch (error) {
    // Usually there is no sandbox. No failure may keep the machine from stopping.
    const level = error instanceof AgentError ? 'info' : 'error'
    log.log(level, 'no sandbox destroyed', { error: messageOf(error) })
  }
}
