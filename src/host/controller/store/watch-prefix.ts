import { abortable } from '../../../base/abort.ts'
import { AgentError, messageOf } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { Event_EventType, type KeyValue } from '../../../gen/etcd/kv.ts'
import { WatchDefinition, WatchRequest, WatchResponse } from '../../../gen/etcd/rpc.ts'
import type { EtcdClient } from './etcd-client.ts'
import { endOfPrefix } from './keys.ts'

export interface PrefixListener {
  /** All keys of the prefix. Called first, and whenever changes may have been missed. */
  onAll(entries: readonly KeyValue[]): void
  onChange(entry: KeyValue, isRemoved: boolean): void
}

/** Keys of one answer of a read. */
const PAGE = 100
/** etcd is asked so often whether it is still there. */
const PROBE_MS = 1000
/** How long its answer may take. */
const SILENCE_MS = 3000
const PAUSE_MS = 200

/**
 * Tells the listener of all keys with a prefix and of each change, until the signal fires. A watch that breaks is resumed from its
 * revision, at another member too; where that revision is compacted, all keys are read anew. Never rejects.
 */
export async function watchPrefix(
  client: EtcdClient,
  {
    prefix,
    listener,
    log,
    signal,
  }: {
    readonly prefix: string
    readonly listener: PrefixListener
    readonly log: Logger
    readonly signal: AbortSignal
  },
): Promise<void> {
  let revision: bigint | undefined
  while (!signal.aborted) {
    try {
      revision ??= await readAll(client, prefix, listener)
      for await (const { events, compactRevision, fragment } of responses(
        client,
        prefix,
        revision + 1n,
        signal,
      )) {
        if (compactRevision > 0n) {
          log.warn('watch compacted', { prefix, revision, compactRevision })
          revision = undefined
          break
        }
        for (const { type, kv } of events)
          if (kv !== undefined) listener.onChange(kv, type === Event_EventType.DELETE)
        // The rest of a fragment may be of the same revision.
        if (!fragment) revision = events.at(-1)?.kv?.modRevision ?? revision
      }
    } catch (error) {
      if (signal.aborted) return
      log.warn('watch broken', { prefix, revision, error: messageOf(error) })
      client.leave()
      await abortable(new Promise((resolve) => setTimeout(resolve, PAUSE_MS)), signal).catch(() => {})
    }
  }
}

/** Returns the revision of what the listener was told. */
async function readAll(client: EtcdClient, prefix: string, listener: PrefixListener): Promise<bigint> {
  const rangeEnd = endOfPrefix(prefix)
  const entries: KeyValue[] = []
  let key = Buffer.from(prefix)
  let revision = 0n
  for (;;) {
    const page = await client.range({ key, rangeEnd, limit: BigInt(PAGE), revision })
    // The further pages are of the same revision.
    if (revision === 0n) revision = page.header?.revision ?? 0n
    entries.push(...page.kvs)
    const last = page.kvs.at(-1)
    if (!page.more || last === undefined) break
    key = Buffer.concat([last.key, Buffer.of(0)])
  }
  listener.onAll(entries)
  return revision
}

/** The responses of one watch. Throws when it ends or etcd falls silent. */
async function* responses(
  client: EtcdClient,
  prefix: string,
  startRevision: bigint,
  signal: AbortSignal,
): AsyncGenerator<WatchResponse, void, undefined> {
  const stream = await client.stream(WatchDefinition.fullName, WatchDefinition.methods.watch.name)
  const end = () => stream.cancel()
  // It may have fired while the member was dialled.
  if (signal.aborted) end()
  signal.addEventListener('abort', end, { once: true })
  const send = (request: Parameters<typeof WatchRequest.fromPartial>[0]) =>
    stream.send(WatchRequest.encode(WatchRequest.fromPartial(request)).finish())
  let heardMs = performance.now()
  const probe = setInterval(() => {
    if (performance.now() - heardMs > SILENCE_MS) end()
    else send({ progressRequest: {} }).catch(end)
  }, PROBE_MS)
  probe.unref()
  try {
    await send({
      createRequest: {
        key: Buffer.from(prefix),
        rangeEnd: endOfPrefix(prefix),
        startRevision,
        fragment: true,
      },
    })
    for await (const answer of stream.answers) {
      heardMs = performance.now()
      const response = WatchResponse.decode(answer)
      yield response
      if (response.canceled)
        throw new AgentError('UNAVAILABLE', `etcd ended the watch: ${response.cancelReason}`)
    }
    throw new AgentError('UNAVAILABLE', 'etcd ended the stream')
  } finally {
    clearInterval(probe)
    signal.removeEventListener('abort', end)
    end()
  }
}
