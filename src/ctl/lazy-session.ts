import type { Duplex, Writable } from 'node:stream'
import { messageOf } from '../base/errors.ts'
import { type Address, addressText, parseAddress } from '../client/connection/address.ts'
import { lastingSession } from '../client/lasting-session.ts'
import { dialSession, openSession, type Session } from '../client/open-session.ts'
import { type Context, UsageError, type Values } from './command.ts'
import { explaining } from './explain-failure.ts'

const DEFAULT_WAIT_MS = 60_000

/** Seconds in which a lost agent may answer again. */
const DEFAULT_RETURN = 10
const LONGEST_RETURN = 86_400

export interface LazySessionOptions extends Pick<Context, 'values' | 'env' | 'signal'> {
  readonly stderr: Pick<Writable, 'write'>
}

/** A session that opens at its first use; the tool closes it. */
export class LazySession {
  readonly #options: LazySessionOptions
  #opening: Promise<Session> | undefined
  #address: Promise<Address> | undefined

  constructor(options: LazySessionOptions) {
    this.#options = options
  }

  open(): Promise<Session> {
    this.#opening ??= this.#connect()
    return this.#opening
  }

  async dial(): Promise<Duplex> {
    await this.open()
    const { dial } = await import('../client/connection/dial.ts')
    return await dial(await this.#whereTo(), this.#options.signal)
  }

  async dialPort(port: number): Promise<Duplex> {
    const address = await this.#whereTo()
    if (address.kind === 'unix' || address.kind === 'instance') {
      throw new UsageError(`${addressText(address)}: has no ports, want vsock://CID or hvsock://PATH`)
    }
    const { dial } = await import('../client/connection/dial.ts')
    return await dial({ ...address, port }, this.#options.signal)
  }

  async close(): Promise<void> {
    // Who opened the session reports its failure.
    const session = await this.#opening?.catch(() => undefined)
    session?.close()
  }

  async #connect(): Promise<Session> {
    const { signal, stderr, values } = this.#options
    const protocol = values.text('protocol') === 'grpc' ? 'grpc' : 'ttrpc'
    const address = await this.#whereTo()
    const first = await openSession({ address, protocol, waitMs: waitMsOf(values), signal })
    const session = lastingSession(first, {
      dial: (each) => dialSession({ address, protocol, signal: each }),
      returnMs: (values.number('reconnect', 0, LONGEST_RETURN) ?? DEFAULT_RETURN) * 1000,
      // A raw terminal does not go back to the first column by itself.
      onLoss: () => stderr.write('agent-ctl: the connection was lost, dialling again\r\n'),
      signal,
    })
    const file = values.text('record')
    if (file === undefined) return explaining(session, session)
    const [{ recorded }, { continuedRecording }] = await Promise.all([
      import('./recording/record-session.ts'),
      import('./recording/recording-file.ts'),
    ])
    return explaining(recorded(session, continuedRecording(file)), session)
  }

  /** Looked up once, because a second search may find another machine. */
  #whereTo(): Promise<Address> {
    this.#address ??= this.#findAddress()
    return this.#address
  }

  async #findAddress(): Promise<Address> {
    const { env, signal, values } = this.#options
    const text = values.text('address') ?? env.AGENT_CTL_ADDRESS ?? ''
    const name = /^microvm:\/\/(.*)$/s.exec(text)?.[1]
    if (text === '' || name !== undefined) {
      const { findMachine } = await import('./find-machine.ts')
      return await findMachine({ name, env, waitMs: waitMsOf(values) ?? 0, signal })
    }
    try {
      return hybrid(parseAddress(text), values)
    } catch (error) {
      throw new UsageError(messageOf(error), { cause: error })
    }
  }
}

function waitMsOf(values: Values): number | undefined {
  if (!values.flag('wait')) return undefined
  return Number(values.text('wait') ?? DEFAULT_WAIT_MS / 1000) * 1000
}

/** kata-agent-ctl's options for a unix socket of a VMM. */
function hybrid(address: Address, values: Values): Address {
  const isHybrid = values.flag('hybrid-vsock') && values.text('hybrid-vsock') !== 'false'
  if (!isHybrid || address.kind !== 'unix') return address
  return {
    kind: 'hvsock',
    path: address.path,
    port: values.number('hybrid-vsock-port', 1, 2 ** 32 - 2) ?? 1024,
  }
}
