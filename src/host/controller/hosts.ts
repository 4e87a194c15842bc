import { AgentError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { Host } from '../../gen/microvm/controller/v1/controller.ts'
import { checkHost } from './check.ts'
import type { EtcdClient } from './store/etcd-client.ts'
import { endOfPrefix, get, HOSTS, hostKey, hostLease, put, unchanged } from './store/keys.ts'

/** A host that says nothing for so long is forgotten. */
export const HOST_TTL_MS = 15_000

const MOST_HOSTS = 1000
const TRIES = 3

/** The hosts that are there, in etcd: each with a lease that the host extends. */
export class Hosts {
  readonly #etcd: EtcdClient
  readonly #log: Logger

  constructor(etcd: EtcdClient, log: Logger) {
    this.#etcd = etcd
    this.#log = log
  }

  /** Keeps a host for {@link HOST_TTL_MS} from now, with what it has now. */
  async register(host: Host): Promise<void> {
    checkHost(host)
    const [key, lease, value] = [hostKey(host.id), hostLease(host.id), Host.encode(host).finish()]
    for (let tries = 0; tries < TRIES; tries++) {
      if ((await this.#etcd.keepAlive(lease)).TTL <= 0n)
        await this.#etcd.grantLease(HOST_TTL_MS / 1000, lease)
      const { kvs } = await this.#etcd.range({ key })
      const [current] = kvs
      // Nothing is written for a host that has what it had.
      if (current !== undefined && current.lease === lease && Buffer.from(value).equals(current.value)) return
      try {
        const { succeeded } = await this.#etcd.txn({
          compare: [unchanged(key, current?.modRevision ?? 0n)],
          success: [put(key, value, lease)],
          failure: [get(key)],
        })
        if (!succeeded) continue
        if (current === undefined)
          this.#log.info('host', { host: host.id, kind: 'there', endpoint: host.endpoint })
        return
      } catch (error) {
        if (!isLeaseGone(error)) throw error
      }
    }
    throw new AgentError('ABORTED', `host ${host.id}: changed by another call, want the call again`)
  }

  /** By id. */
  async list(): Promise<readonly Host[]> {
    const { kvs } = await this.#etcd.range({
      key: Buffer.from(HOSTS),
      rangeEnd: endOfPrefix(HOSTS),
      limit: BigInt(MOST_HOSTS),
    })
    return kvs.map(({ value }) => Host.decode(value))
  }
}

/** The lease has ended since it was extended. */
export function isLeaseGone(error: unknown): boolean {
  return error instanceof AgentError && error.message.includes('requested lease not found')
}
