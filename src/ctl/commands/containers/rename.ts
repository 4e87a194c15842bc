import { plainText } from '../../../client/output/text.ts'
import { lifecycleCalls } from '../../clients.ts'
import { type Context, UsageError } from '../../command.ts'
import { readInput } from '../../methods/read-input.ts'
import { printAs } from '../../output/print.ts'

export async function run(context: Context): Promise<undefined> {
  const { values } = context
  const containers = values.rest('OLD=NEW').map(renamedContainer)
  const [sandboxId, hostname] = [values.text('sandbox') ?? '', values.text('hostname') ?? '']
  const [dns, file] = [values.texts('dns'), values.text('hosts')]
  const hosts = file === undefined ? '' : readInput('--hosts', file).toString()
  if (containers.length + dns.length === 0 && sandboxId + hostname + hosts === '')
    throw new UsageError('rename: nothing to change, want OLD=NEW or an option')
  const lifecycle = await lifecycleCalls(context)
  await lifecycle.rename({ sandboxId, containers, hostname, dns: [...dns], hosts })
  const names = containers
    .filter(({ newId }) => newId !== '')
    .map(({ oldId, newId }) => `${oldId} is ${newId}`)
  const lines = sandboxId === '' ? names : [`the sandbox is ${sandboxId}`, ...names]
  const text = lines.map((line) => `${plainText(line)}\n`).join('')
  await printAs(context, { text, value: { sandboxId, containers } })
}

/** `OLD=NEW`, `OLD=NEW,HOSTNAME` or `OLD=,HOSTNAME`. */
function renamedContainer(word: string) {
  const [, oldId = '', newId = '', hostname = ''] = /^([^=]+)=([^,]*)(?:,(.+))?$/.exec(word) ?? []
  if (newId + hostname === '') throw new UsageError(`rename: '${word}': want OLD=NEW or OLD=NEW,HOSTNAME`)
  return { oldId, newId, hostname, hosts: '' }
}
