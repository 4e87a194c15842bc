import { AgentError, messageOf } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Os } from '../os/os.ts'
import type { AgentArguments } from './config/arguments.ts'
import type { Transport } from './transport/transport.ts'

/** Why the agent stops. */
export type StopReason = 'sandbox destroyed' | 'asked by vminit' | 'vminit is gone' | 'signal'

/** Resolves with the first reason to stop. */
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
  // In a guest nobody but vminit signals the agent, and that says so on the channel.
  if (!given.init) {
    os.system.onSignal('SIGTERM', () => reason.resolve('signal'))
    os.system.onSignal('SIGINT', () => reason.resolve('signal'))
  }
  return reason.promise
}

/**
 * Stops in good order: the sandbox first, then the connections once their calls are answered, then the machine (in a
 * guest) or the process. Resolves with the exit status.
 */
export async function stopAgent(agent: {
  readonly os: Pick<Os, 'supervisor'>
  readonly log: Logger
  readonly given: AgentArguments
  readonly transport: Transport
  readonly reason: StopReason
  readonly destroySandbox: () => Promise<void>
}): Promise<number> {
  agent.log.info('stopping', { reason: agent.reason })
  if (agent.reason !== 'sandbox destroyed') await destroyIfAny(agent.destroySandbox, agent.log)
  await agent.transport.stop()
  agent.log.info('stopped')
  if (agent.given.init) await agent.os.supervisor.powerOff()
  return 0
}

async function destroyIfAny(destroySandbox: () => Promise<void>, log: Logger): Promise<void> {
  try {
    await destroySandbox()
  } catch (error) {
    // Most often there was none; anything else must not keep the machine from stopping.
    const level = error instanceof AgentError ? 'info' : 'error'
    log.log(level, 'no sandbox was destroyed', { error: messageOf(error) })
  }
}
