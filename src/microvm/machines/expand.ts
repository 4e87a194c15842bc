import { stringify } from 'yaml'
import { messageOf } from '../../base/errors.ts'
import { plainText } from '../../client/output/text.ts'
import { differences } from '../../host/machine/diff.ts'
import { isMachine, readDocument, readMachine } from '../../host/machine/document/document.ts'
import { parseYaml } from '../../host/machine/document/parse-yaml.ts'
import { expand } from '../../host/machine/expand.ts'
import { domainXml } from '../../host/machine/libvirt/domain-xml.ts'
import type { Machine } from '../../host/machine/machine.ts'
import { UsageError } from '../command-line/usage-error.mjs'
import { type MachineContext, print, printJson } from './command.ts'
import { firstLine, isToml, parseToml, readInput } from './read-message.ts'

export async function run(context: MachineContext): Promise<undefined> {
  const machine = await machineOf(context, 'FILE')
  const form = context.values.get('as')
  if (form !== undefined) await print(context, textOf(machine, form))
  else if (context.values.has('json')) await printJson(context, machine)
  // A machine's parts are written out each time, so that a reader finds them where they belong.
  else await print(context, stringify(machine, { aliasDuplicateObjects: false }))
}

function textOf(machine: Machine, form: string): string {
  if (form !== 'libvirt') throw new UsageError(`--as ${form}: unknown, want libvirt`)
  try {
    return domainXml(machine)
  } catch (error) {
    throw new UsageError(`--as libvirt: ${messageOf(error)}`, { cause: error })
  }
}

/** Returns 1 when the machines differ. */
export async function diff(context: MachineContext): Promise<number> {
  const [before, after] = [await machineOf(context, 'BEFORE'), await machineOf(context, 'AFTER')]
  const found = differences(before, after)
  for (const difference of found) {
    if (context.values.has('json')) await printJson(context, difference)
    else {
      const [was, is] = [difference.before, difference.after].map((value) => JSON.stringify(value) ?? '-')
      await print(context, `${plainText(`${difference.path}: ${was} → ${is}`)}\n`)
    }
  }
  return found.length === 0 ? 0 : 1
}

/** The machine of a document, or one that was written down. Throws {@link UsageError} that names the file and the field. */
async function machineOf(context: MachineContext, argument: string): Promise<Machine> {
  const { shown, text } = await readInput(context, argument)
  try {
    const value = isToml(shown) ? await parseToml(text) : parseYaml(text)
    if (isMachine(value) && argument !== 'FILE') return readMachine(value)
    return expand(readDocument(value), { isPrivileged: !context.values.has('tenant') })
  } catch (error) {
    throw new UsageError(`${shown}: ${firstLine(error)}`, { cause: error })
  }
}
