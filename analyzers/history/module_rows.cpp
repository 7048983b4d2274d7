#include "ulpscope/analyzers/history/module_rows.h"

#include <map>
#include <memory>
#include <string_view>

namespace ulpscope {

namespace {

// A module, or a tensor in one.
struct Node {
  std::string name;  // the last part of the path
  std::vector<std::unique_ptr<Node>> inside;
  std::map<std::string, Node*, std::less<>> modules;  // of `inside`, by name
  std::vector<uint32_t> tensors;                      // in it, and in what is inside of it
  bool is_tensor = false;
};

Node& module_in(Node& parent, std::string_view name) {
  if (const auto found = parent.modules.find(name); found != parent.modules.end()) return *found->second;
  Node& node = *parent.inside.emplace_back(std::make_unique<Node>());
  node.name = name;
  parent.modules[node.name] = &node;
  return node;
}

// "weight gradient" of "head.weight gradient" in head.
std::string label_in(const std::string& module, const std::string& name) {
  const bool begins_so = !module.empty() && name.size() > module.size() + 1 && name.starts_with(module) &&
                         (name[module.size()] == '.' || name[module.size()] == ' ');
  return begins_so ? name.substr(module.size() + 1) : name;
}

class Rows {
 public:
  Rows(const AnalysisContext& context, const std::function<bool(const std::string&)>& is_folded)
      : context_(context), is_folded_(is_folded) {}

  void add_inside(const Node& node, const std::string& path, size_t depth) {
    for (const auto& each : node.inside) {
      if (each->is_tensor) {
        rows.push_back({"", label_in(path, context_.selection.name(each->tensors.front())), depth, false, each->tensors});
        continue;
      }
      std::string label = each->name;
      const Node* module = each.get();
      while (module->inside.size() == 1 && !module->inside.front()->is_tensor) {
        module = module->inside.front().get();
        label += "." + module->name;
      }
      const std::string whole = path.empty() ? label : path + "." + label;
      if (module->tensors.size() == 1) {
        const uint32_t tensor = module->tensors.front();
        rows.push_back({"", label_in(path, context_.selection.name(tensor)), depth, false, {tensor}});
        continue;
      }
      const bool is_folded = is_folded_(whole);
      rows.push_back({whole, std::move(label), depth, is_folded, module->tensors});
      if (!is_folded) add_inside(*module, whole, depth + 1);
    }
  }

  std::vector<ModuleRow> rows;

 private:
  const AnalysisContext& context_;
  const std::function<bool(const std::string&)>& is_folded_;
};

}  // namespace

std::vector<ModuleRow> module_rows(const AnalysisContext& context, std::span<const uint32_t> tensors,
                                   const std::function<bool(const std::string& module)>& is_folded) {
  Node root;
  for (const uint32_t tensor : tensors) {
    Node* node = &root;
    const std::string& path = context.selection.op(tensor).module;
    for (size_t at = 0; at < path.size();) {
      const size_t dot = std::min(path.find('.', at), path.size());
      node = &module_in(*node, std::string_view(path).substr(at, dot - at));
      node->tensors.push_back(tensor);
      at = dot + 1;
    }
    Node& leaf = *node->inside.emplace_back(std::make_unique<Node>());
    leaf.is_tensor = true;
    leaf.tensors = {tensor};
  }
  Rows rows(context, is_folded);
  rows.add_inside(root, "", 0);
  return std::move(rows.rows);
}

Plot module_heatmap(const History& history, const AnalysisContext& context, Measured measured, std::span<const ModuleRow> rows) {
  Plot plot = tensor_heatmap(history, context, measured, {});
  const StepColumns columns = history.columns();
  for (const ModuleRow& row : rows) {
    Series& series = plot.series.emplace_back();
    if (row.module.empty()) {
      series.name = context.selection.name(row.tensors.front());
      series.key = context.selection.key(row.tensors.front());
    } else {
      series.name = row.module;
      series.key.module = row.module;
    }
    columns.begin(series);
    for (size_t column = 0; column < columns.count; ++column) {
      HistoryCell all;
      for (const uint32_t tensor : row.tensors) all.add(history.cell(tensor, column));
      series.y[column] = all.value(measured);
    }
  }
  return plot;
}

}  // namespace ulpscope
