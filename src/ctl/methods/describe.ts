import type { DescField, DescMessage, DescMethod } from '@bufbuild/protobuf'
import { typeText } from '../../client/json/fields.ts'

/** The help of a method: its request with inner messages, the values of enums, its answer, an example. */
export function describeMethod(method: DescMethod): string {
  const { input, output } = method
  const messages = [...reachable(input)]
  const answers = [...reachable(output)].filter((message) => !messages.includes(message))
  return [
    `${method.name}: a call of ${method.parent.typeName}`,
    '',
    ...messages.flatMap((message) => messageLines(message, message === input ? 'Request' : undefined)),
    ...(output.fields.length === 0
      ? ['Answer: empty', '']
      : answers.flatMap((message) => messageLines(message, message === output ? 'Answer' : undefined))),
    'Example:',
    `  agent-ctl ${[method.name, ...exampleWords(method)].join(' ')}`,
    '',
  ].join('\n')
}

function messageLines(message: DescMessage, role: string | undefined): readonly string[] {
  const title = role === undefined ? message.typeName : `${role} (${message.typeName})`
  if (message.fields.length === 0) return [`${title}: no fields`, '']
  const width = Math.max(...message.fields.map(({ name }) => name.length))
  return [
    `${title}:`,
    ...message.fields.map(
      (field) => `  ${field.name.padEnd(width)}  ${typeText(field)}${choicesText(field)}`,
    ),
    '',
  ]
}

function choicesText(field: DescField): string {
  const choices = field.enum?.values.map(({ name, number }) => `${name} (${number})`).join(', ')
  const oneof = field.oneof === undefined ? '' : `, one of ${field.oneof.name}`
  return `${choices === undefined ? '' : `: ${choices}`}${oneof}`
}

/** The words of requests that need more than sample values of the first fields. */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  CreateContainer: ['file://request.json'],
  ExecProcess: ['container_id=web', 'exec_id=job', 'process.Args=/bin/cat'],
}

function exampleWords({ input, name }: DescMethod): readonly string[] {
  return EXAMPLES[name] ?? input.fields.slice(0, 4).map(exampleOf)
}

function exampleOf(field: DescField): string {
  return `${pathOf(field)}=${sampleOf(field)}`
}

function pathOf(field: DescField): string {
  if (field.fieldKind === 'map') return `${field.name}[key]`
  const here = field.fieldKind === 'list' ? `${field.name}[0]` : field.name
  const inner = field.message?.fields[0]
  return inner === undefined || inner.message === field.message ? here : `${here}.${pathOf(inner)}`
}

function sampleOf(field: DescField): string {
  if (field.message !== undefined) {
    const inner = field.message.fields[0]
    return inner === undefined || inner.message === field.message ? "'{}'" : sampleOf(inner)
  }
  if (field.enum !== undefined) return field.enum.values[0]?.name ?? '0'
  if (field.scalar === undefined) return 'x'
  return VALUES[field.name] ?? VALUES[typeText(field).replace('[]', '')] ?? '1'
}

/** By the name of a field, else by its type. The ids are those of the other examples. */
const VALUES: Readonly<Record<string, string>> = {
  container_id: 'web',
  exec_id: 'job',
  string: 'text',
  bytes: 'text',
  bool: 'true',
}

function reachable(message: DescMessage, found = new Set<DescMessage>()): ReadonlySet<DescMessage> {
  if (found.has(message)) return found
  found.add(message)
  for (const { message: inner } of message.fields) if (inner !== undefined) reachable(inner, found)
  return found
}
